"""Data modules over the loaders of the libraries; nothing here downloads during a run."""

from phantomgrad.data.base import DataModule
from phantomgrad.data.chains import Chains
from phantomgrad.data.cifar import Cifar10
from phantomgrad.data.digits import Digits
from phantomgrad.data.graphs import GraphFolds
from phantomgrad.data.imagenet import ImageNet

__all__ = ["Chains", "Cifar10", "DataModule", "Digits", "GraphFolds", "ImageNet"]
