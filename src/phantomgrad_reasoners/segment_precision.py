"""Gradient estimators and fixed points of a reasoner, by segment, along its training."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from lightning import LightningModule, Trainer
from torch import Tensor
from torch.utils._pytree import tree_map

from phantomgrad.checks import check_at_least
from phantomgrad.deq import DEQ
from phantomgrad.diagnostics import agreement, estimated_gradient
from phantomgrad.gradients import (
    BackpropThroughSolver,
    GradientEstimator,
    NeumannPhantomGradient,
    UnrolledPhantomGradient,
)
from phantomgrad.jacobian import Linearization, pulled_back
from phantomgrad.models import RecursiveCell, RecursiveReasoner
from phantomgrad.solvers import LinearSolver, Map, Solver, Steps
from phantomgrad_suite.callbacks.capture import all_recorded, radii
from phantomgrad_suite.callbacks.curves import Series
from phantomgrad_suite.runs.errors import UserError

Gradients = dict[str, Sequence[Tensor]]


class SegmentPrecision(Series):
    r"""Compares gradient estimators on fixed puzzles in every segment, along deep supervision.

    Every ``every_n_steps`` steps (and after the last one, if it is a multiple), the present weights
    solve the validation data. A segment is the trajectory :math:`h_0, \dots, h_T` of the model's T
    recursions :math:`G_n`, with its noise, from the carry :math:`h_0`; the loss, without the
    halting term, is taken at :math:`h_T`. For the first ``puzzles``, the gradients with respect to
    the parameters of the cell are summed over the segments, as they are in a training batch, whose
    rows are in different segments. The exact gradient is that of all T (n + 1) elementary steps.
    Compared with it (:class:`phantomgrad.Agreement`) are

    - ``last_<j>``: that of the last j elementary steps, for each j in ``recorded``;
    - ``estimators``, and ``implicit`` by the solver ``adjoint``: with :math:`h_{T-1}` as the
      equilibrium of G_n, and the cotangent of :math:`h_T`, its image.

    The curves by ``precision/step`` are also logged. By segment they are the mean ``residual``
    :math:`\|h_T - h_{T-1}\| / \|h_T\|`, the share of ``solved`` puzzles and, of the first ones, the
    mean ``spectral_radius`` of the Jacobian at :math:`h_{T-1}` and the shares of ``converged`` and
    ``adjoint_converged`` solves for the fixed point and the adjoint from there. ``residual_order``
    is the rank correlation over the puzzles of residual and wrong cells, after the last segment.
    """

    def __init__(
        self,
        estimators: Mapping[str, GradientEstimator],
        recorded: Sequence[int],
        solver: Solver,
        adjoint: LinearSolver,
        puzzles: int = 16,
        every_n_steps: int = 100,
        iterations: int = 16,
    ) -> None:
        super().__init__()
        counts = {"puzzles": puzzles, "iterations": iterations}
        for name, count in (counts | {"every_n_steps": every_n_steps}).items():
            check_at_least(name, count, 1)
        for j in recorded:
            check_at_least("recorded", j, 1)
        self._estimators, self._recorded = dict(estimators), tuple(recorded)
        self._solver, self._adjoint = solver, adjoint
        self._puzzles, self._every, self._iterations = puzzles, every_n_steps, iterations

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        model = pl_module.model
        if not isinstance(model, RecursiveReasoner) or model.n is None:
            raise UserError("measure.segments needs a reasoner with two latents: model=trm")
        steps, most = recursions(model.deq) * (model.n + 1), max(self._recorded, default=0)
        if most > steps:
            raise UserError(f"recorded must be at most {steps}, the steps of a segment, got {most}")

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        step, steps = trainer.global_step, self.curves.get("precision/step")
        if step % self._every or (steps and steps[-1] == step):
            return
        devices = [pl_module.device] if pl_module.device.type == "cuda" else []  # that draw noise
        with trainer.precision_plugin.forward_context(), torch.random.fork_rng(devices):
            values = self._measure(pl_module, trainer.datamodule.parts["validation"])  # type: ignore[attr-defined]
        self.keep({"precision/step": step, **values})
        for logger in trainer.loggers:
            logger.log_metrics(values, step=step)

    on_train_end = on_train_batch_start

    @torch.enable_grad()
    def _measure(self, task: Any, puzzles: Any) -> dict[str, float]:
        inputs, targets = (tokens.to(task.device) for tokens in puzzles.__getitems__(slice(None)))
        model, first = task.model, slice(self._puzzles)
        layer, state, x = model.deq, model.start(inputs), model.embed(inputs).detach()
        sums: Gradients = {}
        values: dict[str, float] = {}
        for segment in range(1, task.segments + 1):
            given = model.inputs(x)
            f, h = layer.close_over(given, state)
            states = trajectory(f, h, recursions(layer))
            end = states[-1].requires_grad_()
            losses, right, labelled = task.marked(model.output(f.shown(end)[0]), targets)
            (v,) = torch.autograd.grad(losses[first].mean(), [end])
            end, wrong = end.detach(), (labelled & ~right).sum(dim=1)
            residual = (end - states[-2]).norm(dim=1) / end.norm(dim=1)
            few, begin = tree_map(lambda part: part[..., first, :, :], (given, state))
            g, _ = layer.close_over(few, begin)
            begun = [h[first].detach() for h in states]
            with all_recorded(layer.cell):
                gradients, by_puzzle = self._at(layer.cell, g, begun, v[first])
            for name, gradient in gradients.items():
                sums[name] = [*map(torch.add, sums[name], gradient)] if name in sums else gradient
            by_puzzle |= {"residual": residual, "solved": wrong == 0}
            for name, each in by_puzzle.items():
                values[f"segment{segment}/{name}"] = float(each.double().mean())
            state = f.shown(end)
        exact = sums.pop("exact")
        for name, estimate in sums.items():
            for quantity, value in agreement(estimate, exact)._asdict().items():
                values[f"{name}/{quantity}"] = value
        values["residual_order"] = rank_correlation(residual, wrong)
        return {f"precision/{name}": value for name, value in values.items()}

    def _at(
        self, cell: RecursiveCell, f: Map, states: list[Tensor], v: Tensor
    ) -> tuple[Gradients, dict[str, Tensor]]:
        """Return the gradients of a segment, and what is measured of each puzzle."""
        wanted, every = [*cell.parameters()], (len(states) - 1) * (cell.n + 1)
        counts = {"exact": every, **{f"last_{j}": j for j in self._recorded}}
        ends = {name: last_steps(cell, f, states, j) for name, j in counts.items()}
        found: Gradients = {name: pulled_back(end, wanted, v) for name, end in ends.items()}
        h = states[-2]
        for name, estimator in self._estimators.items():
            found[name] = estimated_gradient(f, h, v, estimator, wanted)
        at = Linearization(f, h)
        dual = self._adjoint.solve_linear(at.vjp, v)
        found["implicit"] = pulled_back(at.value, wanted, dual.z)
        with torch.no_grad():
            fixed = self._solver.solve(f, h)
        return found, {
            "spectral_radius": radii(f, h, self._iterations),
            "converged": fixed.converged,
            "adjoint_converged": dual.converged,
        }


def recursions(layer: DEQ) -> int:
    """Return the number of recursions in a segment of a reasoner with this layer."""
    match layer.solver, layer.gradient:
        case Steps(n=n, damping=1.0), BackpropThroughSolver():
            return n
        case Steps(n=n, damping=1.0), UnrolledPhantomGradient(steps=k, damping=1.0):
            return n + k
        case Steps(n=n, damping=1.0), NeumannPhantomGradient(value="image"):
            return n + 1
    raise UserError(
        "measure.segments needs a segment of undamped recursions: solver=steps, with gradient=bptt,"
        " one_step, upg (damping 1) or npg (value: image)"
    )


@torch.no_grad()
def trajectory(f: Map, h: Tensor, length: int) -> list[Tensor]:
    """Return the states of so many recursions from ``h`` on."""
    states = [h]
    for _ in range(length):
        states.append(f(states[-1]))
    return states


def last_steps(cell: RecursiveCell, f: Map, states: Sequence[Tensor], j: int) -> Tensor:
    """Return the last of ``states``, the images under ``f``, with j elementary steps on a graph."""
    recursions, rest = divmod(j, cell.n + 1)
    z = states[-1 - recursions - bool(rest)]
    if rest:
        cell.recorded = rest
        z = f(z)
        cell.recorded = cell.n + 1
    for _ in range(recursions):
        z = f(z)
    return z


def rank_correlation(a: Tensor, b: Tensor) -> float:
    """Return Spearman's correlation of two vectors, with mean ranks of ties."""
    ranks = [(x[:, None] - x).sign().double().sum(dim=1) for x in (a, b)]
    return float(torch.corrcoef(torch.stack(ranks))[0, 1])
