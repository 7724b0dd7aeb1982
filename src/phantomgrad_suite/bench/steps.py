"""Cases: one training step of a model, forward and backward, without the optimizer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from phantomgrad.deq import DEQ
from phantomgrad.gradients import GradientEstimator, ImplicitGradient, UnrolledPhantomGradient
from phantomgrad.solvers import Broyden, Solver
from phantomgrad_suite.bench import peer
from phantomgrad_suite.bench.contest import (
    IMPLICIT,
    MEMORY,
    OF_PEER,
    OURS,
    PEER,
    Aim,
    Case,
    Contender,
    Run,
)
from phantomgrad_suite.bench.maps import ConvolutionalCell
from phantomgrad_suite.studies.clock import Clock, Watch

STEP_AIMS = (Aim("step", 1.0), Aim(MEMORY, 1.0))

Step = tuple[nn.Module, nn.Module, Callable[[], Tensor]]
"""A model, its cell, and a call that computes the loss."""

Layer = Callable[[nn.Module], nn.Module]
"""From a cell to the layer that finds and differentiates its equilibrium."""


@dataclass(frozen=True, kw_only=True)
class StepCase(Case):
    """A training step with one gradient, given as ours and as the settings of the peer.

    Args:
        name: of the case.
        solver: finds the equilibrium, on both sides.
        gradient: of ours, implicit or unrolled.
        implicit: our implicit differentiation, another contender, where ``gradient`` is another.
        aims: what is expected.
    """

    name: str
    solver: Solver
    gradient: GradientEstimator
    implicit: GradientEstimator | None = None
    aims: tuple[Aim, ...] = STEP_AIMS

    @abstractmethod
    def step(self, device: torch.device, layer: Layer) -> Step:
        """Return the step of the model whose equilibria come from ``layer(cell)``."""

    def contenders(self, device: torch.device, with_peer: bool) -> dict[str, Contender]:
        """Return the step of ours and those of the others: same weights, same data."""
        watch = Watch()
        ours = self.step(device, partial(self._our_layer, watch=watch))
        others = {
            name: _contender(*self.step(device, layer))
            for name, layer in self.layers().items()
            if name != OURS and (with_peer or name not in OF_PEER)
        }
        return {OURS: _contender(*ours, watch), **others}

    def layers(self) -> dict[str, Layer]:
        """Return the layers of all contenders, by name."""
        found: dict[str, Layer] = {OURS: self._our_layer, PEER: self._peer_layer}
        if self.implicit is not None:
            found[IMPLICIT] = replace(self, gradient=self.implicit)._our_layer
        return found

    def _our_layer(self, cell: nn.Module, watch: Watch | None = None) -> nn.Module:
        solver, gradient = self.solver, self.gradient
        if watch is not None:
            solver = watch.over(solver)
            if isinstance(gradient, ImplicitGradient):
                gradient = replace(gradient, solver=watch.over(gradient.solver))
        return DEQ(cell, solver, gradient)

    def _peer_layer(self, cell: nn.Module) -> nn.Module:
        return peer.PeerDEQ(cell, self.solver, _settings(self.gradient))


@dataclass(frozen=True, kw_only=True)
class ConvolutionCase(StepCase):
    """A convolutional equilibrium, ``(batch, channels, side, side)``."""

    batch: int = 64
    channels: int = 30
    side: int = 32

    @property
    def samples(self) -> int:  # type: ignore[override]
        """The images."""
        return self.batch

    def step(self, device: torch.device, layer: Layer) -> Step:
        """Return the step: the loss is the mean square of the equilibrium."""
        torch.manual_seed(0)
        cell = ConvolutionalCell(self.channels)
        model = layer(cell).to(device)
        x = torch.randn(self.batch, self.channels, self.side, self.side, device=device)
        x.requires_grad_()
        z0 = torch.zeros_like(x)

        def loss() -> Tensor:
            x.grad = None
            z: Tensor = model(x, z0=z0)[0]
            return z.square().mean()

        return model, cell, loss


def convolution_cases(batch: int = 64, side: int = 32) -> list[StepCase]:
    """Return the step under implicit differentiation and under the phantom gradient."""
    forward = Broyden(max_evaluations=19, tol=0)
    adjoint = Broyden(max_evaluations=21, tol=0)
    gradients = {"implicit": ImplicitGradient(solver=adjoint), "UPG": _PHANTOM}
    return [
        ConvolutionCase(
            name=f"convolution {(batch, 30, side, side)}, {name}",
            solver=forward,
            gradient=gradient,
            batch=batch,
            side=side,
        )
        for name, gradient in gradients.items()
    ]


_PHANTOM = UnrolledPhantomGradient(steps=5, damping=0.5)


def _settings(gradient: GradientEstimator) -> dict[str, object]:
    if isinstance(gradient, ImplicitGradient):
        return peer.implicit(gradient.solver)
    if isinstance(gradient, UnrolledPhantomGradient):
        return peer.unrolled(gradient.steps, gradient.current_damping)
    raise TypeError(f"the peer has no counterpart of {type(gradient).__name__}")


def _contender(
    model: nn.Module, cell: nn.Module, loss: Callable[[], Tensor], watch: Watch | None = None
) -> Contender:
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    cell.register_forward_hook(count)

    def run(clock: Clock) -> Run:
        nonlocal calls
        calls = 0
        if watch is not None:
            watch.clock = clock
        model.zero_grad(set_to_none=True)
        start = clock.mark()
        value = loss()
        middle = clock.mark()
        value.backward()  # type: ignore[no-untyped-call]
        end = clock.mark()
        seconds = {
            "step": clock.seconds(start, end),
            "forward": clock.seconds(start, middle),
            "backward": clock.seconds(middle, end),
        }
        return Run(seconds, calls, None if watch is None else watch.take())

    return run
