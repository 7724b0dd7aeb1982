"""Classification: losses and metrics by their definitions, and short trainings."""

import pytest
import torch
import torch.nn.functional as F
from tasks.fitting import SGD, logged
from torch import nn

from phantomgrad.models import Propagation
from phantomgrad_suite.data import ImageBatch
from phantomgrad_suite.data.graphs.chains import NodeBatch
from phantomgrad_suite.data.graphs.ppi import MultilabelGraph
from phantomgrad_suite.data.graphs.tu import GraphBatch
from phantomgrad_suite.tasks import (
    GraphClassification,
    ImageClassification,
    MultilabelNodeClassification,
    NodeClassification,
)

pytestmark = pytest.mark.usefixtures("float32")
PARTS = ("test", "validation")


class Scores(nn.Module):
    """Returns its parameter, normalised, and remembers how it was called."""

    def __init__(self, scores):
        super().__init__()
        self.scores = nn.Parameter(torch.tensor(scores).log_softmax(dim=1))

    def forward(self, *args, **kwargs):
        self.called = (args, kwargs)
        return self.scores


class Identity(nn.Module):
    """Returns its first argument as scores."""

    def forward(self, scores, *_):
        return scores


def graphs(*labels):
    eye = Propagation(torch.eye(len(labels)))
    return GraphBatch(torch.rand(len(labels), 2), eye, eye, torch.tensor(labels))


def test_graphs(monkeypatch):
    """The accuracy is over the graphs of all batches, not the mean of the batches."""
    model, batch = Scores([[2.0, 0.0], [3.0, 1.0], [0.0, 5.0]]), graphs(0, 1, 1)
    task = GraphClassification(classes=2, model=model, optimizer=SGD)
    found = logged(task, monkeypatch)
    expected = -(model.scores[0, 0] + model.scores[1, 1] + model.scores[2, 1]) / 3
    torch.testing.assert_close(task.training_step(batch, 0), expected)
    torch.testing.assert_close(task.total_loss, 3 * expected)
    task.validation_step(batch, 0)
    assert found["test/accuracy"].compute().item() == pytest.approx(2 / 3)
    # The batch holds P U.
    given = (batch.features, batch.propagation, batch.pooling)
    assert model.called == (given, {"propagated": True})
    model.scores = nn.Parameter(model.scores[:1].detach())
    task.validation_step(graphs(1), 1)
    assert found["test/accuracy"].compute().item() == pytest.approx(2 / 4)


def test_nodes_of_a_part(monkeypatch):
    nodes = {"train": [0, 3], "validation": [1], "test": [2]}
    masks = {part: torch.isin(torch.arange(4), torch.tensor(n)) for part, n in nodes.items()}
    labels = torch.tensor([0, 1, 1, 1])
    batch = NodeBatch(torch.rand(4, 2), Propagation(torch.eye(4)), labels, masks)
    model = Scores([[4.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 2.0]])
    task = NodeClassification(classes=2, model=model, optimizer=SGD, evaluation_sets=PARTS)
    found = logged(task, monkeypatch)
    expected = F.nll_loss(model.scores[[0, 3]], labels[[0, 3]])
    torch.testing.assert_close(task.training_step(batch, 0), expected)
    for i in range(2):
        task.validation_step(batch, 0, dataloader_idx=i)
    assert found["test/accuracy"].compute() == 1
    assert found["validation/accuracy"].compute() == 0
    torch.testing.assert_close(found["validation/loss"], -model.scores[1, 1])
    assert "test/loss" not in found


def graph(logits, labels):
    eye = Propagation(torch.eye(len(labels)))
    return MultilabelGraph(torch.tensor(logits), eye, torch.tensor(labels).float(), 1.0)


def test_micro_f1(monkeypatch):
    """All graphs, nodes and labels of a set count; a logit in (0, 0.5) predicts its label, too."""
    multilabel = MultilabelNodeClassification(
        labels=3, model=Identity(), optimizer=SGD, evaluation_sets=PARTS
    )
    found = logged(multilabel, monkeypatch)
    multilabel.validation_step(graph([[0.1, 0.2, -5.0]], [[1, 0, 1]]), 0)  # TP 1, FP 1, FN 1
    second = graph([[0.3, 0.4, 0.1], [-0.1, -0.2, 0.6]], [[1, 1, 1], [0, 0, 1]])
    multilabel.validation_step(second, 1)
    assert found["test/micro_f1"].compute().item() == pytest.approx(2 * 5 / (2 * 5 + 1 + 1))
    nothing_predicted = graph([[0.0, -1.0, -2.0]], [[1, 1, 0]])
    multilabel.validation_step(nothing_predicted, 0, dataloader_idx=1)
    assert found["validation/micro_f1"].compute() == 0
    assert (multilabel.metric, multilabel.metric_mode) == ("micro_f1", "max")


@pytest.mark.parametrize("pair", [ImageBatch, lambda *pair: list(pair), lambda *pair: pair])
def test_batch_of_images_is_any_pair(pair, monkeypatch):
    task = ImageClassification(classes=3, model=nn.LogSoftmax(dim=1), optimizer=SGD)
    found = logged(task, monkeypatch)
    images = torch.tensor([[2.0, 0.0, 0.0], [0.0, 3.0, 1.0], [5.0, 0.0, 1.0]])
    labels = torch.tensor([0, 1, 2])
    expected = -images.log_softmax(dim=1)[range(3), labels].mean()
    torch.testing.assert_close(task.training_step(pair(images, labels), 0), expected)
    task.validation_step(pair(images, labels), 0)
    assert found["test/accuracy"].compute().item() == pytest.approx(2 / 3)
