"""Data modules over the loaders of the libraries; nothing here downloads during a run."""

from phantomgrad.data.base import DataModule
from phantomgrad.data.graphs.chains import Chains
from phantomgrad.data.graphs.ppi import PPI
from phantomgrad.data.graphs.tu import GraphFolds
from phantomgrad.data.images.cifar import Cifar10
from phantomgrad.data.images.digits import Digits
from phantomgrad.data.images.imagenet import ImageNet
from phantomgrad.data.text.topics import PydocTopics
from phantomgrad.data.text.wikitext import WikiText103

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
