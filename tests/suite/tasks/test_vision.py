"""Image classification: loss and accuracy by their definitions, and a few steps on digits."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from lightning import Trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from phantomgrad import Anderson, ImplicitGradient
from phantomgrad.models import ImageClassifier
from phantomgrad_suite.data import Digits, ImageBatch, LabelledData
from phantomgrad_suite.tasks import ImageClassification

pytestmark = pytest.mark.usefixtures("float32")
SOLVER = Anderson(max_evaluations=40, tol=1e-3)


class Scores(nn.Module):
    """A model that returns the log-probabilities it is given as images."""

    def forward(self, images: Tensor) -> Tensor:
        return images.log_softmax(dim=1)


def test_loss_and_accuracy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mean negative log-likelihood; hits over the images of all batches."""
    optimizer = partial(torch.optim.SGD, lr=0.1)
    parts = ("test", "validation")
    task = ImageClassification(
        classes=3, model=Scores(), optimizer=optimizer, evaluation_sets=parts
    )
    found: dict[str, Any] = {}
    monkeypatch.setattr(task, "log", lambda name, value, **_: found.__setitem__(name, value))
    images = torch.tensor([[2.0, 0.0, 0.0], [0.0, 3.0, 1.0], [5.0, 0.0, 1.0]])
    labels = torch.tensor([0, 1, 2])
    expected = -images.log_softmax(dim=1)[range(3), labels].mean()
    torch.testing.assert_close(task.training_step(ImageBatch(images, labels), 0), expected)
    torch.testing.assert_close(task.total_loss, 3 * expected)
    for part in range(2):
        task.validation_step(ImageBatch(images, labels), 0, dataloader_idx=part)
    task.validation_step(ImageBatch(images[:1], labels[:1]), 1, dataloader_idx=1)
    assert found["test/accuracy"].compute().item() == pytest.approx(2 / 3)
    assert found["validation/accuracy"].compute().item() == pytest.approx(3 / 4)
    assert {"validation/loss"} == {name for name in found if name.endswith("loss")}


@pytest.mark.parametrize("pair", [list, tuple])
def test_plain_pair_is_a_batch(pair: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch's own collation makes it."""
    optimizer = partial(torch.optim.SGD, lr=0.1)
    task = ImageClassification(classes=3, model=Scores(), optimizer=optimizer)
    monkeypatch.setattr(task, "log", lambda *_, **__: None)
    images, labels = torch.rand(4, 3), torch.tensor([0, 1, 2, 0])
    expected = task.training_step(ImageBatch(images, labels), 0)
    assert torch.equal(task.training_step(pair((images, labels)), 0), expected)
    task.validation_step(pair((images, labels)), 0)


class Own(LabelledData):
    """What a user writes: torch's loaders, and two numbers."""

    in_channels, classes = 1, 2

    def facts(self) -> dict[str, Any]:
        return {"name": "own"}

    def train_dataloader(self) -> DataLoader[Any]:
        generator = torch.Generator().manual_seed(0)
        labels = torch.randint(2, (12,), generator=generator)
        images = torch.rand(12, 1, 8, 8, generator=generator) + labels.view(-1, 1, 1, 1)
        return DataLoader(TensorDataset(images, labels), batch_size=4)

    val_dataloader = train_dataloader


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*")
@pytest.mark.filterwarnings("ignore:.*does not have many workers.*")
@pytest.mark.filterwarnings("ignore:.*smaller than the logging interval.*")
def test_data_module_of_one_s_own_trains() -> None:
    data, optimizer = Own(), partial(torch.optim.Adam, lr=0.01)
    model = ImageClassifier(**data.sizes(), solver=SOLVER, gradient=ImplicitGradient(solver=SOLVER))
    task = ImageClassification(model=model, optimizer=optimizer, **data.targets())
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(task, data)
    assert 0 <= trainer.callback_metrics["test/accuracy"] <= 1


def digits_task() -> ImageClassification:
    model = ImageClassifier(1, 10, SOLVER, ImplicitGradient(solver=SOLVER))
    optimizer = partial(torch.optim.Adam, lr=0.005)
    parts = Digits.evaluation_sets
    return ImageClassification(classes=10, model=model, optimizer=optimizer, evaluation_sets=parts)


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*")
@pytest.mark.filterwarnings("ignore:.*does not have many workers.*")
def test_an_epoch_on_the_digits() -> None:
    """Through Lightning's loop: the loss falls, the solvers converge, the kernels stay small."""
    task, data = digits_task(), Digits()
    first = next(iter(data.train_dataloader()))
    with torch.no_grad():
        before = F.nll_loss(task.model(first.images), first.labels)
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(task, data)
    metrics = trainer.callback_metrics
    with torch.no_grad():
        assert F.nll_loss(task.model(first.images), first.labels) < before / 4
    assert metrics["test/accuracy"] > 0.8
    assert metrics["validation/accuracy"] > 0.8
    assert metrics["solver/converged"] == metrics["adjoint/converged"] == 1
    assert metrics["solver/residual"] < SOLVER.tol
    kernel = task.model.deq.cell.first.weight.flatten(1)
    assert torch.linalg.matrix_norm(kernel, ord=2) <= task.model.deq.cell.kappa + 1e-5
