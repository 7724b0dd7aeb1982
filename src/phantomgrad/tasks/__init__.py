"""Losses and metrics of each kind of problem, as Lightning modules."""

from phantomgrad.tasks.base import Task
from phantomgrad.tasks.classification import Classification
from phantomgrad.tasks.graphs import GraphClassification, NodeClassification
from phantomgrad.tasks.vision import ImageClassification

__all__ = [
    "Classification",
    "GraphClassification",
    "ImageClassification",
    "NodeClassification",
    "Task",
]
