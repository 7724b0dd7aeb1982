"""The implicit models of the paper, and recursive reasoners."""

from phantomgrad.graphs import Propagation, adjacency, normalized_adjacency
from phantomgrad.models.convolutional import ConvolutionalCell, ImageClassifier
from phantomgrad.models.ignn import (
    GraphClassifier,
    ImplicitGraphLayer,
    MultilabelNodeClassifier,
    NodeClassifier,
    project_rows_onto_l1_ball,
)
from phantomgrad.models.mdeq import MDEQ, MDEQCell
from phantomgrad.models.recursive import Answer, RecursiveCell, RecursiveNetwork, RecursiveReasoner
from phantomgrad.models.transformer import Memory, TransformerCell, TransformerLM

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
    "TransformerCell",
    "TransformerLM",
    "adjacency",
    "normalized_adjacency",
    "project_rows_onto_l1_ball",
]
