"""The part of a training step that the instrument of Figure 2 sees, and models to train."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from phantomgrad import (
    DEQ,
    Broyden,
    GradientEstimator,
    ImplicitGradient,
    NeumannPhantomGradient,
    Solver,
    UnrolledPhantomGradient,
)
from phantomgrad.nn import VariationalDropout
from phantomgrad_suite.callbacks import GradientPrecision

TIGHT = Broyden(max_evaluations=60, tol=1e-13)
EXACT = ImplicitGradient(solver=TIGHT)
ESTIMATORS: dict[str, GradientEstimator] = {
    "exact": EXACT,
    "upg": UnrolledPhantomGradient(5, 0.5),
    "npg": NeumannPhantomGradient(3, 0.8),
}


class Stack(nn.Module):
    """Two layers, one on the other, of the given cells."""

    def __init__(self, *cells: nn.Module, solver: Solver = TIGHT, gradient: Any = EXACT) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DEQ(cell, solver, gradient) for cell in cells)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x, _ = layer(x)
        return x


class Wild(nn.Module):
    """All that could tell two evaluations, or two runs, apart; a layer warns of some of it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = spectral_norm(nn.Linear(4, 4))
        self.mask, self.norm = VariationalDropout(0.5), nn.BatchNorm1d(4)
        self.noise = nn.Dropout(0.1)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, z: Tensor, x: Tensor) -> Tensor:
        self.calls = self.calls + 1
        return 0.5 * torch.tanh(self.noise(self.mask(self.linear(z))) + self.norm(x))


class Jar:
    """A logger."""

    def __init__(self) -> None:
        self.points: list[tuple[int, dict[str, float]]] = []

    def log_metrics(self, values: dict[str, float], step: int) -> None:
        self.points.append((step, values))


def train_step(callback: GradientPrecision, module: Any, x: Tensor, step: int = 0) -> Jar:
    """The part of a training step that the callback sees; the gradients stay."""
    jar = Jar()
    plugin = SimpleNamespace(forward_context=contextlib.nullcontext)
    trainer: Any = SimpleNamespace(global_step=step, loggers=[jar], precision_plugin=plugin)
    module.zero_grad()
    callback.on_train_start(trainer, module)
    callback.on_train_batch_start(trainer, module, None, 0)
    loss = module(x).square().sum()
    callback.on_before_backward(trainer, module, loss)
    loss.backward()
    callback.on_after_backward(trainer, module)
    return jar


class Spy(GradientPrecision):
    """The instrument, with all it has seen."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.looks: list[Any] = []

    def _look(self, heard: Any) -> Any:
        self.looks.append(super()._look(heard))
        return self.looks[-1]


def instrument(**settings: Any) -> Spy:
    return Spy(**{"estimators": ESTIMATORS, "solver": TIGHT, "every_n_steps": 1} | settings)


def last(callback: GradientPrecision) -> dict[str, float]:
    """The last point, without the prefix of its names."""
    return {name.removeprefix("precision/"): c[-1] for name, c in callback.curves().items()}
