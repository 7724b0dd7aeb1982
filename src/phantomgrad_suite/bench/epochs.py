"""Seconds of an epoch of IGNN on COX2, and where they go."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch
import torch.nn.functional as F

from phantomgrad.gradients import (
    GradientEstimator,
    ImplicitGradient,
    NeumannPhantomGradient,
    UnrolledPhantomGradient,
)
from phantomgrad.models import GraphClassifier, ImplicitGraphLayer
from phantomgrad.solvers import FixedPoint
from phantomgrad_suite.data.graphs.tu import GraphBatch, GraphFolds
from phantomgrad_suite.studies.clock import Clock

_T = TypeVar("_T")

# As in configs/solver/ignn_forward.yaml and ignn_adjoint.yaml.
_FORWARD = FixedPoint(max_evaluations=300, tol=3e-6, stop="absolute", norm="max")
_ADJOINT = FixedPoint(max_evaluations=300, tol=1e-4, stop="relative", norm="max")
_GRADIENTS: dict[str, GradientEstimator] = {
    "implicit": ImplicitGradient(solver=_ADJOINT),
    "UPG A(5, 0.5)": UnrolledPhantomGradient(steps=5, damping=0.5),
    "NPG A(5, 0.5)": NeumannPhantomGradient(steps=5, damping=0.5),
}


@dataclass(frozen=True)
class EpochCost:
    """What training one fold costs, a mean over its epochs.

    Attributes:
        gradient: how the equilibria were differentiated.
        epochs: how many were trained; late ones need more evaluations than early ones.
        seconds: by phase: ``forward``, ``backward``, ``update`` and ``test``, and ``epoch``.
        evaluations: of f in a forward solve, and of the adjoint map in a backward solve.
    """

    gradient: str
    epochs: int
    seconds: dict[str, float]
    evaluations: dict[str, float]


def epoch_costs(root: Path, epochs: int, device: torch.device) -> list[EpochCost]:
    """Train the authors' fold 0 with each gradient, from the same start, and take the time.

    Raises:
        MissingDataError: COX2 is not in ``root``.
    """
    data = GraphFolds(name="COX2", root=str(root))
    data.setup()
    return [_train(name, gradient, data, epochs, device) for name, gradient in _GRADIENTS.items()]


def as_epoch_table(costs: list[EpochCost]) -> str:
    """Return a Markdown table, a row for each gradient, in milliseconds."""
    phases = ("epoch", "forward", "backward", "update", "test")
    head = ("gradient", *(f"{phase} (ms)" for phase in phases), "f / solve", "adjoint / solve")
    rows = [
        (
            cost.gradient,
            *(f"{cost.seconds[phase] * 1e3:.1f}" for phase in phases),
            *(f"{cost.evaluations.get(k, 0):.1f}" for k in ("forward", "adjoint")),
        )
        for cost in costs
    ]
    rule = ("---", *["---:"] * (len(head) - 1))
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *rows))


def _train(
    name: str, gradient: GradientEstimator, data: GraphFolds, epochs: int, device: torch.device
) -> EpochCost:
    torch.manual_seed(42)
    model = GraphClassifier(data.in_channels, data.classes, _FORWARD, gradient).to(device)
    optimizer = torch.optim.Adam(p for p in model.parameters() if p.requires_grad)
    meter = _Meter(Clock(device))
    training = [b.to(device) for b in data.train_dataloader()]
    test = [b.to(device) for b in data.val_dataloader()[0]]
    for _ in range(epochs):
        model.train()
        for batch in training:
            loss = meter.timed("forward", partial(_loss, model, batch))
            meter.timed("backward", loss.backward)
            meter.timed("update", lambda: _update(model, optimizer))
            meter.count(model)
        model.eval()
        with torch.no_grad():
            meter.timed("test", lambda: [_scores(model, batch) for batch in test])
    seconds = {phase: total / epochs for phase, total in meter.seconds.items()}
    return EpochCost(
        gradient=name,
        epochs=epochs,
        seconds={"epoch": sum(seconds.values()), **seconds},
        evaluations={k: sum(v) / len(v) for k, v in meter.evaluations.items()},
    )


class _Meter:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.seconds: dict[str, float] = defaultdict(float)
        self.evaluations: dict[str, list[float]] = defaultdict(list)

    def timed(self, phase: str, action: Callable[[], _T]) -> _T:
        start = self._clock.mark()
        result = action()
        self.seconds[phase] += self._clock.seconds(start, self._clock.mark())
        return result

    def count(self, model: GraphClassifier) -> None:
        for layer in model.layers:
            assert isinstance(layer, ImplicitGraphLayer)
            solutions = {"forward": layer.deq.last_solution, "adjoint": layer.deq.last_adjoint}
            for name, solution in solutions.items():
                if solution is not None:
                    self.evaluations[name].append(float(solution.evaluations.float().mean()))


def _loss(model: GraphClassifier, batch: GraphBatch) -> torch.Tensor:
    return F.nll_loss(_scores(model, batch), batch.labels)


def _scores(model: GraphClassifier, batch: GraphBatch) -> torch.Tensor:
    scores: torch.Tensor = model(batch.features, batch.propagation, batch.pooling, propagated=True)
    return scores


def _update(model: GraphClassifier, optimizer: torch.optim.Optimizer) -> None:
    optimizer.step()
    optimizer.zero_grad()
    model.project_()
