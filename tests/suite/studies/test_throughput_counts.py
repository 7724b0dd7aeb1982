"""What a training step should cost in evaluations of f: the right number, or none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from torch import nn

from phantomgrad import DEQ
from phantomgrad.gradients import (
    BackpropThroughSolver,
    GradientEstimator,
    ImplicitGradient,
    NeumannPhantomGradient,
    UnrolledPhantomGradient,
)
from phantomgrad.solvers import FixedPoint
from phantomgrad_suite.studies import Throughput
from phantomgrad_suite.studies.throughput import counted
from phantomgrad_suite.tasks import JacobianRegularisation


def fake_step(
    gradient: GradientEstimator, jacobian: JacobianRegularisation | None = None, jitter: int = 0
) -> Any:
    """A step of two layers, whose solves took 5 and 7 evaluations, and 3 of the adjoint map."""
    layers = [DEQ(nn.Identity(), FixedPoint(), gradient) for _ in range(2)]
    found = FixedPoint(max_evaluations=1).solve(lambda z: z, torch.zeros(1, 1))
    for layer, spent in zip(layers, (5, 7), strict=True):
        layer.last_solution = found._replace(evaluations=torch.tensor([spent]))
        if isinstance(gradient, ImplicitGradient):
            layer.last_adjoint = found._replace(evaluations=torch.tensor([3]))
    task = SimpleNamespace(jacobian=jacobian)
    config = OmegaConf.create({"task": {"budget_jitter": jitter}})
    return SimpleNamespace(layers=layers, task=task, config=config)


@pytest.mark.parametrize(
    ("gradient", "forward", "backward"),
    [
        (ImplicitGradient(), 6 + 1, 3 + 2),
        (ImplicitGradient(at="image"), 6 + 2, 3 + 2),
        (UnrolledPhantomGradient(4, 0.5), 6 + 4, 8),
        (NeumannPhantomGradient(4, 0.5), 6 + 1, 3 + 2),
        (ImplicitGradient(order=2), None, None),
        (ImplicitGradient(on_failure="phantom"), None, None),
        (UnrolledPhantomGradient(4, "adaptive"), None, None),
        (BackpropThroughSolver(), None, None),
    ],
    ids=repr,
)
def test_a_count_is_right_or_not_there(
    gradient: GradientEstimator, forward: float | None, backward: float | None
) -> None:
    """Means over the layers; no number where the model decides what is evaluated."""
    found = counted(fake_step(gradient))
    if forward is None or backward is None:
        assert found is None
    else:
        expected = {"step": forward + backward, "forward": forward, "backward": backward}
        assert found == expected


def test_a_count_of_steps_that_differ_is_not_there() -> None:
    """A penalty in some steps, or budgets that vary, and there is no one number."""
    gradient, penalty = UnrolledPhantomGradient(4, 0.5), JacobianRegularisation(weight=1.0)
    assert counted(fake_step(gradient)) is not None
    assert counted(fake_step(gradient, replace(penalty, frequency=0.0))) is not None
    assert counted(fake_step(gradient, penalty)) is None
    assert counted(fake_step(gradient, jitter=2)) is None
    mixed = fake_step(gradient)
    mixed.layers[1].gradient = NeumannPhantomGradient(4, 0.5)
    assert counted(mixed) is None
    assert counted(SimpleNamespace(**{**vars(mixed), "layers": []})) is None


@pytest.mark.parametrize(
    ("evaluations", "gradient"),
    [
        (lambda calls: calls + 1, ImplicitGradient(at="equilibrium")),
        (lambda calls: calls + 2, ImplicitGradient(at="image")),
        (lambda calls: calls + 3, UnrolledPhantomGradient(3, 0.5)),
    ],
    ids=["equilibrium", "image", "UPG"],
)
def test_a_count_is_that_of_the_calls(
    evaluations: Callable[[int], int], gradient: GradientEstimator
) -> None:
    """Of the cell, in a forward pass."""
    calls, step = 0, fake_step(gradient)

    class Cell(nn.Linear):
        def forward(self, z: torch.Tensor) -> torch.Tensor:
            nonlocal calls
            calls += 1
            return super().forward(z) / 4

    layer = DEQ(Cell(3, 3), FixedPoint(max_evaluations=8, tol=0), gradient)
    layer(z0=torch.ones(2, 3))[0].sum().backward()
    assert calls == evaluations(8)
    found = counted(SimpleNamespace(**{**vars(step), "layers": [layer]}))
    assert found is not None
    assert found["forward"] == calls


def test_rows_are_compared_with_one_where_asked() -> None:
    """But for itself; a baseline of a row's own comes first."""
    plain = Throughput(rows=("a", "b", "c"), baselines={"c": "b"})
    assert [plain._baseline(row) for row in "abc"] == ["", "", "b"]
    assert [replace(plain, against="a")._baseline(row) for row in "abc"] == ["", "a", "b"]
