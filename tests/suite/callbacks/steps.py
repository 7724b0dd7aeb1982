"""The parts of a training step that GradientPrecision sees, and models to train."""

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

import phantomgrad as pg
from phantomgrad.nn import VariationalDropout
from phantomgrad_suite.callbacks import GradientPrecision, gradient_precision

TIGHT = pg.Broyden(max_evaluations=60, tol=1e-13)
EXACT = pg.ImplicitGradient(solver=TIGHT)
ESTIMATORS: dict[str, pg.GradientEstimator] = {
    "exact": EXACT,
    "upg": pg.UnrolledPhantomGradient(5, 0.5),
    "npg": pg.NeumannPhantomGradient(3, 0.8),
}


class Stack(nn.Module):
    """A layer of each of the given cells, one after the other."""

    def __init__(self, *cells: nn.Module, solver: pg.Solver = TIGHT, gradient: Any = EXACT) -> None:
        super().__init__()
        self.layers = nn.ModuleList(pg.DEQ(cell, solver, gradient) for cell in cells)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x, _ = layer(x)
        return x


class Wild(nn.Module):
    """A cell with everything that can make two evaluations differ."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = spectral_norm(nn.Linear(4, 4))
        self.mask, self.norm = VariationalDropout(0.5), nn.BatchNorm1d(4)
        self.noise = nn.Dropout(0.1)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, z: Tensor, x: Tensor) -> Tensor:
        self.calls = self.calls + 1
        return 0.5 * torch.tanh(self.noise(self.mask(self.linear(z))) + self.norm(x))


def callback(**settings: Any) -> GradientPrecision:
    defaults = {"estimators": ESTIMATORS, "solver": TIGHT, "every_n_steps": 1}
    return GradientPrecision(**(defaults | settings))


def train_step(
    callback: GradientPrecision, module: Any, x: Tensor, step: int = 0
) -> list[tuple[int, dict[str, float]]]:
    """Do the part of a training step that the callback sees; return what it logged."""
    points: list[tuple[int, dict[str, float]]] = []
    logger = SimpleNamespace(log_metrics=lambda values, step: points.append((step, values)))
    plugin = SimpleNamespace(forward_context=contextlib.nullcontext)
    trainer: Any = SimpleNamespace(global_step=step, loggers=[logger], precision_plugin=plugin)
    module.zero_grad()
    callback.on_train_batch_start(trainer, module)
    loss = module(x).square().sum()
    callback.on_before_backward()
    loss.backward()
    callback.on_after_backward(trainer, module)
    return points


def last(callback: GradientPrecision) -> dict[str, float]:
    """Return the last point, by name without the prefix."""
    return {name.removeprefix("precision/"): c[-1] for name, c in callback.curves.items()}


def recorded(monkeypatch: pytest.MonkeyPatch, name: str) -> list[Any]:
    """Return a list of what a function of the callback's module will return."""
    found: list[Any] = []
    function = getattr(gradient_precision, name)

    def call(*arguments: Any, **options: Any) -> Any:
        found.append(function(*arguments, **options))
        return found[-1]

    monkeypatch.setattr(gradient_precision, name, call)
    return found
