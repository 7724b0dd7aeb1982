"""Tasks: losses and metrics against their definitions, and what happens around a step."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from lightning import LightningModule, Trainer
from torch import Tensor, nn

from phantomgrad import (
    DEQ,
    Anderson,
    FixedPoint,
    ImplicitGradient,
    UnrolledPhantomGradient,
)
from phantomgrad.models import GraphClassifier, NodeClassifier, Propagation
from phantomgrad_suite.data.loaders import fixed_batches
from phantomgrad_suite.data.graphs.chains import NodeBatch, make_chains
from phantomgrad_suite.data.graphs.tu import GraphBatch
from phantomgrad_suite.tasks import GraphClassification, NodeClassification
from phantomgrad_suite.tasks.base import solver_statistics

pytestmark = pytest.mark.usefixtures("float32")
SOLVER = FixedPoint(max_evaluations=300, tol=1e-5)
SGD = partial(torch.optim.SGD, lr=0.1)


class Scores(nn.Module):
    """A model that returns the log-probabilities it was made with, and knows its last call."""

    def __init__(self, scores: Tensor) -> None:
        super().__init__()
        self.scores = nn.Parameter(scores.log_softmax(dim=1))
        self.called: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        self.called = (args, kwargs)
        return self.scores


def logged(task: LightningModule, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Collect what the task logs."""
    found: dict[str, Any] = {}
    monkeypatch.setattr(task, "log", lambda name, value, **_: found.__setitem__(name, value))
    monkeypatch.setattr(task, "log_dict", lambda values, **_: found.update(values))
    return found


# --- Losses and metrics ----------------------------------------------------------------------


@pytest.fixture
def graph_batch() -> GraphBatch:
    eye = Propagation(torch.eye(3))
    return GraphBatch(torch.rand(3, 2), eye, eye, torch.tensor([0, 1, 1]))


def test_graph_loss_and_accuracy(graph_batch: GraphBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Scores(torch.tensor([[2.0, 0.0], [3.0, 1.0], [0.0, 5.0]]))
    task = GraphClassification(classes=2, model=model, optimizer=SGD)
    found = logged(task, monkeypatch)
    expected = -(model.scores[0, 0] + model.scores[1, 1] + model.scores[2, 1]) / 3
    torch.testing.assert_close(task.training_step(graph_batch, 0), expected)
    torch.testing.assert_close(task.total_loss, 3 * expected)
    task.validation_step(graph_batch, 0)
    assert found["test/accuracy"].compute().item() == pytest.approx(2 / 3)
    assert model.called == (
        (graph_batch.features, graph_batch.propagation, graph_batch.pooling),
        {"propagated": True},  # the batch holds P U
    )


def test_node_scores_are_those_of_the_part(monkeypatch: pytest.MonkeyPatch) -> None:
    masks = {
        "train": torch.tensor([True, False, False, True]),
        "validation": torch.tensor([False, True, False, False]),
        "test": torch.tensor([False, False, True, False]),
    }
    labels = torch.tensor([0, 1, 1, 1])
    batch = NodeBatch(torch.rand(4, 2), Propagation(torch.eye(4)), labels, masks)
    model = Scores(torch.tensor([[4.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 2.0]]))
    task = NodeClassification(
        classes=2, model=model, optimizer=SGD, evaluation_sets=("test", "validation")
    )
    found = logged(task, monkeypatch)
    loss = task.training_step(batch, 0)
    torch.testing.assert_close(loss, F.nll_loss(model.scores[[0, 3]], labels[[0, 3]]))
    for i in range(2):
        task.validation_step(batch, 0, dataloader_idx=i)
    assert found["test/accuracy"].compute() == 1
    assert found["validation/accuracy"].compute() == 0
    torch.testing.assert_close(found["validation/loss"], -model.scores[1, 1])
    assert "test/loss" not in found


def test_accuracy_is_over_all_batches_of_an_epoch(
    graph_batch: GraphBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Micro average: hits over graphs, not the mean of the batches."""
    model = Scores(torch.tensor([[2.0, 0.0], [3.0, 1.0], [0.0, 5.0]]))
    task = GraphClassification(classes=2, model=model, optimizer=SGD)
    found = logged(task, monkeypatch)
    task.validation_step(graph_batch, 0)
    model.scores = nn.Parameter(model.scores[:1].detach())
    eye = Propagation(torch.eye(1))
    task.validation_step(GraphBatch(torch.rand(1, 2), eye, eye, torch.tensor([1])), 1)
    assert found["test/accuracy"].compute().item() == pytest.approx(2 / 4)


# --- Around a step ---------------------------------------------------------------------------


def chains_task(**settings: Any) -> NodeClassification:
    model = NodeClassifier(
        20, 2, SOLVER, ImplicitGradient(solver=SOLVER), channels=8, dropout=0.0, kappa=0.9
    )
    optimizer = partial(torch.optim.SGD, lr=5.0)
    return NodeClassification(**{"classes": 2, "model": model, "optimizer": optimizer, **settings})


def fit(task: LightningModule, epochs: int = 2) -> Trainer:
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    batch = make_chains(16, 10, 20, noise=0.0, seed=0)
    trainer.fit(task, fixed_batches([batch]), fixed_batches([batch]))
    return trainer


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*")
@pytest.mark.filterwarnings("ignore:.*does not have many workers.*")
class TestTraining:
    """Through Lightning's loop."""

    def test_model_is_well_posed_after_every_step(self) -> None:
        task = chains_task()
        before = task.model.layer.weight.detach().clone()
        fit(task)
        weight = task.model.layer.weight
        assert not torch.equal(weight, before)
        assert weight.abs().sum(dim=1).max() <= 0.9 + 1e-5

    def test_loss_is_that_of_plain_gradient_descent(self) -> None:
        """Two epochs of the loop against the steps written down."""
        task = chains_task(optimizer=partial(torch.optim.SGD, lr=1.0))
        batch = make_chains(16, 10, 20, noise=0.0, seed=0)
        other = chains_task()
        other.load_state_dict(task.state_dict())
        fit(task)
        model, mask = other.model, batch.masks["train"]
        for _ in range(2):
            loss = F.nll_loss(model(batch.features, batch.propagation)[mask], batch.labels[mask])
            parameters = [p for p in model.parameters() if p.requires_grad]
            for p, g in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
                p.data -= g
            model.project_()
        for ours, expected in zip(task.model.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(ours, expected)

    def test_solver_statistics_are_logged(self) -> None:
        metrics = fit(chains_task()).callback_metrics
        for name in ("solver", "adjoint"):
            assert metrics[f"{name}/converged"] == 1
            assert 0 < metrics[f"{name}/residual"] < 1e-5
            assert metrics[f"{name}/evaluations"] > 1

    def test_schedule_steps_once_an_epoch(self) -> None:
        schedule = partial(torch.optim.lr_scheduler.MultiStepLR, milestones=[2], gamma=0.5)
        trainer = fit(chains_task(schedule=schedule), epochs=3)
        assert trainer.optimizers[0].param_groups[0]["lr"] == 2.5


def test_each_gradient_is_clipped_on_its_own() -> None:
    task = chains_task(clip_each=0.5)
    norms = [0.1, 0.5, 7.0]
    trained = [p for p in task.model.parameters() if p.requires_grad]
    for parameter, norm in zip(trained, norms, strict=True):
        gradient = torch.randn_like(parameter)
        parameter.grad = norm * gradient / gradient.norm()
    before = [p.grad.clone() for p in trained]
    task.on_before_optimizer_step(None)  # type: ignore[arg-type]
    for parameter, gradient, norm in zip(trained, before, norms, strict=True):
        scale = min(1.0, 0.5 / norm)
        torch.testing.assert_close(parameter.grad, scale * gradient, rtol=1e-5, atol=1e-7)


def test_gradients_are_left_alone_unless_asked() -> None:
    task = chains_task()
    parameter = task.model.output.weight
    parameter.grad = torch.full_like(parameter, 100.0)
    task.on_before_optimizer_step(None)  # type: ignore[arg-type]
    assert (parameter.grad == 100).all()


def test_optimizer_holds_the_trainable_parameters_alone() -> None:
    task = chains_task()
    optimizer = task.configure_optimizers()
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert held == {id(p) for p in task.model.parameters() if p.requires_grad}
    assert id(task.model.layer.unused_omega) not in held


# --- Solver statistics -----------------------------------------------------------------------


def test_statistics_are_means_over_the_layers() -> None:
    gradient = UnrolledPhantomGradient(1, 1.0)
    model = GraphClassifier(2, 2, SOLVER, gradient, channels=4, layers=2)
    assert solver_statistics(model) == {}
    eye = Propagation(torch.eye(3))
    model(torch.rand(3, 2), eye, eye, propagated=False)
    statistics = solver_statistics(model)
    assert set(statistics) == {"solver/residual", "solver/evaluations", "solver/converged"}
    layers = [m for m in model.modules() if isinstance(m, DEQ)]
    evaluations = [layer.last_solution.evaluations for layer in layers]
    assert statistics["solver/evaluations"] == torch.cat(evaluations).float().mean()


def test_a_solver_that_gave_up_shows_in_the_statistics() -> None:
    solver = Anderson(max_evaluations=2, tol=1e-9)
    model = GraphClassifier(2, 2, solver, UnrolledPhantomGradient(1, 1.0), channels=4)
    eye = Propagation(torch.eye(3))
    model(torch.rand(3, 2), eye, eye, propagated=False)
    assert solver_statistics(model)["solver/converged"] < 1
