"""Losses and metrics of each kind of problem, as Lightning modules."""

from phantomgrad.tasks.base import Task
from phantomgrad.tasks.graphs import GraphClassification, NodeClassification

__all__ = ["GraphClassification", "NodeClassification", "Task"]
