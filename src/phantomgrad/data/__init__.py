"""Data modules over the loaders of the libraries; nothing here downloads during a run."""

from phantomgrad.data.base import DataModule
from phantomgrad.data.chains import Chains
from phantomgrad.data.digits import Digits
from phantomgrad.data.graphs import GraphFolds

__all__ = ["Chains", "DataModule", "Digits", "GraphFolds"]
