"""Losses and metrics of each kind of problem, as Lightning modules."""

from phantomgrad_suite.tasks.base import Task
from phantomgrad_suite.tasks.classification import (
    Classification,
    GraphClassification,
    ImageClassification,
    MultilabelNodeClassification,
    NodeClassification,
)
from phantomgrad_suite.tasks.language import LanguageModelling
from phantomgrad_suite.tasks.reasoning import Reasoning
from phantomgrad_suite.tasks.regularisation import JacobianRegularisation

__all__ = [
    "Classification",
    "GraphClassification",
    "ImageClassification",
    "JacobianRegularisation",
    "LanguageModelling",
    "MultilabelNodeClassification",
    "NodeClassification",
    "Reasoning",
    "Task",
]
