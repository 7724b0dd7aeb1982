"""The implicit models of the paper, and recursive reasoners."""

from phantomgrad.models.convolutional import ConvolutionalCell, ImageClassifier
from phantomgrad.models.ignn import (
    GraphClassifier,
    ImplicitGraphLayer,
    MultilabelNodeClassifier,
    NodeClassifier,
    project_rows_onto_l1_ball,
)
from phantomgrad.models.mdeq.cell import MDEQCell
from phantomgrad.models.mdeq.classifier import MDEQ
from phantomgrad.models.recursive.network import RecursiveNetwork
from phantomgrad.models.recursive.reasoner import Answer, RecursiveCell, RecursiveReasoner
from phantomgrad.models.synthetic import SyntheticCell, symmetric_matrix
from phantomgrad.models.transformer.attention import Memory
from phantomgrad.models.transformer.cell import TransformerCell
from phantomgrad.models.transformer.language import TransformerLM
from phantomgrad.nn.propagation import Propagation, adjacency, normalized_adjacency

__all__ = [
    "MDEQ",
    "Answer",
    "ConvolutionalCell",
    "GraphClassifier",
    "ImageClassifier",
    "ImplicitGraphLayer",
    "MDEQCell",
    "Memory",
    "MultilabelNodeClassifier",
    "NodeClassifier",
    "Propagation",
    "RecursiveCell",
    "RecursiveNetwork",
    "RecursiveReasoner",
    "SyntheticCell",
    "TransformerCell",
    "TransformerLM",
    "adjacency",
    "normalized_adjacency",
    "project_rows_onto_l1_ball",
    "symmetric_matrix",
]
