"""The implicit models of the paper."""

from phantomgrad.models.ignn import (
    GraphClassifier,
    ImplicitGraphLayer,
    NodeClassifier,
    project_rows_onto_l1_ball,
)
from phantomgrad.models.propagation import Propagation, normalized_adjacency

__all__ = [
    "GraphClassifier",
    "ImplicitGraphLayer",
    "NodeClassifier",
    "Propagation",
    "normalized_adjacency",
    "project_rows_onto_l1_ball",
]
