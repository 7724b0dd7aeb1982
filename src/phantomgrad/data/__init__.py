"""Data modules over the loaders of the libraries; nothing here downloads during a run."""

from phantomgrad.data.base import DataModule
from phantomgrad.data.chains import Chains
from phantomgrad.data.cifar import Cifar10
from phantomgrad.data.digits import Digits
from phantomgrad.data.graphs import GraphFolds
from phantomgrad.data.imagenet import ImageNet
from phantomgrad.data.ppi import PPI
from phantomgrad.data.topics import PydocTopics
from phantomgrad.data.wikitext import WikiText103

__all__ = [
    "PPI",
    "Chains",
    "Cifar10",
    "DataModule",
    "Digits",
    "GraphFolds",
    "ImageNet",
    "PydocTopics",
    "WikiText103",
]
