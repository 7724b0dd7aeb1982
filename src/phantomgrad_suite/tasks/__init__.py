"""Losses and metrics of each kind of problem, as Lightning modules."""

from phantomgrad_suite.tasks.base import Task
from phantomgrad_suite.tasks.classification import Classification
from phantomgrad_suite.tasks.graphs import GraphClassification, NodeClassification
from phantomgrad_suite.tasks.language import LanguageModelling
from phantomgrad_suite.tasks.multilabel import MultilabelNodeClassification
from phantomgrad_suite.tasks.regularisation import JacobianRegularisation
from phantomgrad_suite.tasks.vision import ImageClassification

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
