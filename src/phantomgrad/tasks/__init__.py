"""Losses and metrics of each kind of problem, as Lightning modules."""

from phantomgrad.tasks.base import Task
from phantomgrad.tasks.classification import Classification
from phantomgrad.tasks.graphs import GraphClassification, NodeClassification
from phantomgrad.tasks.language import LanguageModelling
from phantomgrad.tasks.multilabel import MultilabelNodeClassification
from phantomgrad.tasks.regularisation import JacobianRegularisation
from phantomgrad.tasks.vision import ImageClassification

__all__ = [
    "Classification",
    "GraphClassification",
    "ImageClassification",
    "JacobianRegularisation",
    "LanguageModelling",
    "MultilabelNodeClassification",
    "NodeClassification",
    "Task",
]
