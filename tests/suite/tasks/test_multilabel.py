"""Multi-label classification: loss and micro-F1 against their definitions."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from phantomgrad.models import Propagation
from phantomgrad_suite.data.graphs.ppi import MultilabelGraph
from phantomgrad_suite.tasks import MultilabelNodeClassification

pytestmark = pytest.mark.usefixtures("float32")
SGD = partial(torch.optim.SGD, lr=0.1)


class Scores(nn.Module):
    """A model that returns the features as logits."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, features: Tensor, propagation: Propagation) -> Tensor:
        return self.scale * features


def graph(logits: list[list[float]], labels: list[list[int]]) -> MultilabelGraph:
    eye = Propagation(torch.eye(len(labels)))
    return MultilabelGraph(torch.tensor(logits), eye, torch.tensor(labels).float(), 1.0)


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> MultilabelNodeClassification:
    task = MultilabelNodeClassification(
        labels=3, model=Scores(), optimizer=SGD, evaluation_sets=("test", "validation")
    )
    task.found = {}  # type: ignore[assignment]

    def log(name: str, value: Any, **options: Any) -> None:
        task.found[name] = (value, options)  # type: ignore[operator, index]

    monkeypatch.setattr(task, "log", log)
    return task


def test_loss_is_the_mean_over_nodes_and_labels(task: MultilabelNodeClassification) -> None:
    batch = graph([[0.0, 2.0, -1.0], [1.0, -3.0, 0.5]], [[1, 1, 0], [0, 0, 1]])
    p, y = batch.features.sigmoid(), batch.labels
    expected = -(y * p.log() + (1 - y) * (1 - p).log()).sum() / 6
    torch.testing.assert_close(task.training_step(batch, 0), expected)
    torch.testing.assert_close(task.total_loss, 2 * expected)  # so counted: by nodes
    task.validation_step(batch, 0, dataloader_idx=1)
    value, options = task.found["validation/loss"]  # type: ignore[index]
    torch.testing.assert_close(value, expected)
    assert options["batch_size"] == 2
    assert "test/loss" not in task.found  # type: ignore[operator]


def test_micro_f1_counts_over_graphs_nodes_and_labels(task: MultilabelNodeClassification) -> None:
    """Not the mean of the graphs' values; a logit counts by its sign, one in (0, 0.5) too."""
    task.validation_step(graph([[0.1, 0.2, -5.0]], [[1, 0, 1]]), 0)  # TP 1, FP 1, FN 1
    task.validation_step(graph([[0.3, 0.4, 0.1], [-0.1, -0.2, 0.6]], [[1, 1, 1], [0, 0, 1]]), 1)
    metric, _ = task.found["test/micro_f1"]  # type: ignore[index]
    assert metric.compute().item() == pytest.approx(2 * 5 / (2 * 5 + 1 + 1))
    assert (task.metric, task.metric_mode) == ("micro_f1", "max")


def test_nothing_predicted_scores_nothing(task: MultilabelNodeClassification) -> None:
    task.validation_step(graph([[0.0, -1.0, -2.0]], [[1, 1, 0]]), 0)
    metric, _ = task.found["test/micro_f1"]  # type: ignore[index]
    assert metric.compute() == 0


def test_evaluation_sets_are_counted_apart(task: MultilabelNodeClassification) -> None:
    task.validation_step(graph([[1.0, -1.0, -1.0]], [[1, 0, 0]]), 0, dataloader_idx=0)
    task.validation_step(graph([[-1.0, 1.0, -1.0]], [[1, 0, 0]]), 0, dataloader_idx=1)
    values = {name: task.found[f"{name}/micro_f1"][0].compute() for name in task.evaluation_sets}  # type: ignore[index]
    assert values == {"test": 1, "validation": 0}
