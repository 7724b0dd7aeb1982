"""Cases: one training step of the DEQ-Transformer on a segment of text, and one evaluation of f."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from phantomgrad.gradients import ImplicitGradient, UnrolledPhantomGradient
from phantomgrad.models import TransformerLM
from phantomgrad.models.transformer import Memory
from phantomgrad.nn import shared_parametrizations
from phantomgrad.solvers import Broyden
from phantomgrad_suite.bench.contest import (
    EACH_TIME,
    HOISTED,
    IMPLICIT,
    MEMORY,
    OURS,
    PEER,
    Aim,
    Case,
    Contender,
    Run,
)
from phantomgrad_suite.bench.images import widths
from phantomgrad_suite.bench.steps import Layer, Step, StepCase
from phantomgrad_suite.data import WikiText103
from phantomgrad_suite.studies.clock import Clock

_AIMS = (Aim("step", 1.5), Aim(MEMORY, 1.0))
_PAPER = Aim("step", 1.7, against=IMPLICIT)  # Table 3
_FORWARD = Broyden(max_evaluations=31, tol=0)
_ADJOINT = Broyden(max_evaluations=41, tol=0)
_CALLS = 8  # evaluations of f in a sample, each of which is short


class Words(NamedTuple):
    """What the model is called with.

    Attributes:
        tokens: a segment, ``(B, L)``.
        targets: the word that follows each, ``(B, L)``.
        memory: of what is in front of it.
    """

    tokens: Tensor
    targets: Tensor
    memory: Memory


class WholeCell(nn.Module):
    """A cell that computes everything at every evaluation, also what is constant in a solve.

    It is called as :class:`TransformerCell` is, and so can take its place in a model.

    Args:
        cell: the cell, whose ``context`` is what is constant.
    """

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def context(self, *inputs: Any) -> tuple[Any, ...]:
        """Return what the constants are computed from."""
        return inputs

    def forward(self, z: Tensor, inputs: tuple[Any, ...]) -> Tensor:
        """Return the next state, ``(B, L, d)``."""
        return self.cell(z, self.cell.context(*inputs))  # type: ignore[operator, no-any-return]


@dataclass(frozen=True, kw_only=True)
class LanguageCase(StepCase):
    """A step of the small DEQ-Transformer on a segment behind a full memory.

    The peer gets f twice: as one writes it down, with everything computed at every evaluation, and
    as ours does, with the constants of a segment computed once. What the first ratio has more
    than the second comes of the constants, the second of the solver.

    Args:
        batch: number of streams.
        length: of a segment, in words.
    """

    batch: int
    length: int
    aims: tuple[Aim, ...] = _AIMS

    @property
    def samples(self) -> int:  # type: ignore[override]
        """The words."""
        return self.batch * self.length

    def step(self, device: torch.device, layer: Layer) -> Step:
        """Return the step, from the embedding to the loss."""
        model, words = build(self, device)
        model.deq = layer(model.deq.cell)  # type: ignore[assignment]
        return model, model.deq.cell, lambda: model(*words)[0].mean()

    def layers(self) -> dict[str, Layer]:
        """Return ours, the peer's with each f, and that of implicit differentiation."""
        whole: Layer = lambda cell: self._peer_layer(WholeCell(cell))  # noqa: E731
        return super().layers() | {PEER: whole, HOISTED: self._peer_layer}


@dataclass(frozen=True, kw_only=True)
class EvaluationCase(Case):
    """One evaluation of f, with the constants of a segment and with all of it.

    Quantities: ``f``, as in a solve, and ``f and gradients``, recorded and with a backward pass to
    everything but the constants' own graph.

    Args:
        name: of the case.
        batch: number of streams.
        length: of a segment, in words.
        aims: what is expected.
    """

    name: str
    batch: int
    length: int
    aims: tuple[Aim, ...] = ()

    def contenders(self, device: torch.device, with_peer: bool) -> dict[str, Contender]:
        """Return both, on the same state."""
        return {
            name: partial(_evaluate, *self.evaluation(device, whole=name == EACH_TIME))
            for name in (OURS, EACH_TIME)
        }

    def evaluation(
        self, device: torch.device, *, whole: bool
    ) -> tuple[nn.Module, Tensor, tuple[Any, ...]]:
        """Return the cell, a state, and what it is called with, as leaves of the graph."""
        model, words = build(self, device)
        state = torch.randn(self.batch, self.length, model.width).to(device).requires_grad_()
        with torch.no_grad():
            u = model.inject(words.tokens)
            inputs = (u, model.distances(words.memory.length + self.length, u), words.memory)
            context = model.cell.context(*inputs)
        if whole:
            u.requires_grad_()
            return WholeCell(model.cell), state, inputs
        for constant in context:
            constant.requires_grad_(constant.is_floating_point())
        return model.cell, state, context


def language_cases(batch: int = 16, length: int = 64) -> list[Case]:
    """Return the step under implicit differentiation and under UPG, and the evaluation of f.

    The budgets are those of the rows: 30 steps of Broyden, 40 for the adjoint, k = 5.
    """
    name = f"TransformerLM, {batch} x {length} words"
    implicit = LanguageCase(
        name=f"{name}, implicit",
        solver=_FORWARD,
        gradient=ImplicitGradient(solver=_ADJOINT, on_failure="ignore"),
        batch=batch,
        length=length,
    )
    phantom = replace(
        implicit,
        name=f"{name}, UPG",
        gradient=UnrolledPhantomGradient(steps=5, damping=0.8),
        implicit=implicit.gradient,
        aims=(*_AIMS, _PAPER),
    )
    return [implicit, phantom, EvaluationCase(name=f"{name}, one f", batch=batch, length=length)]


def build(case: LanguageCase | EvaluationCase, device: torch.device) -> tuple[TransformerLM, Words]:
    """Return the model of the rows ``wikitext``, and random words behind a full memory."""
    torch.manual_seed(0)
    settings = widths("transformer_small")
    memory_length = settings["memory_length"]
    data = WikiText103.synthetic(
        name="wikitext103-valid",
        batch_size=case.batch,
        segment_length=memory_length + case.length,
    )
    gradient = UnrolledPhantomGradient(steps=5, damping=0.8)
    model = TransformerLM(data.sizes()["vocabulary"], _FORWARD, gradient, **settings).to(device)
    tokens, targets, _ = data.draw(torch.Generator().manual_seed(0))
    states = torch.randn(case.batch, memory_length, model.width).to(device)
    with torch.no_grad():
        injections = model.inject(tokens[:, :memory_length].to(device))
    tokens, targets = (x[:, memory_length:].to(device) for x in (tokens, targets))
    return model, Words(tokens, targets, Memory(states, injections))


def _evaluate(cell: nn.Module, state: Tensor, inputs: tuple[Any, ...], clock: Clock) -> Run:
    constants = [t for t in tree_leaves(inputs) if isinstance(t, Tensor) and t.requires_grad]
    leaves = [state, *constants, *cell.parameters()]
    with shared_parametrizations(cell):

        @torch.no_grad()
        def solving() -> None:
            cell(state, inputs)

        def recorded() -> None:
            value = cell(state, inputs)
            # The graph of the weights, which all evaluations share, is kept.
            torch.autograd.grad(value, leaves, state, retain_graph=True, allow_unused=True)

        solving()  # draws the masks
        seconds = {"f": _mean(solving, clock), "f and gradients": _mean(recorded, clock)}
    return Run(seconds, 2 * _CALLS)


def _mean(call: Callable[[], None], clock: Clock) -> float:
    start = clock.mark()
    for _ in range(_CALLS):
        call()
    return clock.seconds(start, clock.mark()) / _CALLS
