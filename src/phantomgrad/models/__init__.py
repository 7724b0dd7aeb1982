"""The implicit models of the paper."""

from phantomgrad.models.convolutional import ConvolutionalCell, ImageClassifier
from phantomgrad.models.ignn import (
    GraphClassifier,
    ImplicitGraphLayer,
    NodeClassifier,
    project_rows_onto_l1_ball,
)
from phantomgrad.models.mdeq import MDEQ, MDEQCell
from phantomgrad.models.propagation import Propagation, normalized_adjacency
from phantomgrad.models.synthetic import SyntheticCell, symmetric_matrix

__all__ = [
    "MDEQ",
    "ConvolutionalCell",
    "GraphClassifier",
    "ImageClassifier",
    "ImplicitGraphLayer",
    "MDEQCell",
    "NodeClassifier",
    "Propagation",
    "SyntheticCell",
    "normalized_adjacency",
    "project_rows_onto_l1_ball",
    "symmetric_matrix",
]
