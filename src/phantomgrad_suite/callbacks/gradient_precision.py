"""The precision of gradient estimators along a training run (Figure 2 of the paper)."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from lightning import LightningModule, Trainer
from torch import Tensor

from phantomgrad.checks import check_at_least, check_damping
from phantomgrad.deq import DEQ
from phantomgrad.diagnostics import agreement, estimated_gradient, exact_gradient
from phantomgrad.gradients import GradientEstimator
from phantomgrad.solvers import LinearSolver, Map, Solver
from phantomgrad_suite.callbacks.capture import Pass, layers_of, radii, watch
from phantomgrad_suite.callbacks.curves import Series
from phantomgrad_suite.runs.errors import UserError


class GradientPrecision(Series):
    r"""Compares gradient estimators with the exact gradient in steps of a training run.

    Each estimator gives the gradient of the loss with respect to the trainable parameters of the
    cells at the equilibria of the step. It is also computed exactly, at tightly solved equilibria,
    with the weights and dropout masks of the step. The gradients of all layers form one vector
    (Geng et al., 2021, fig. "real_cos"); if a layer is called several times, its last call counts.
    The run is not changed.

    Of each of ``pairs`` of estimators the cosine between the two is measured, too, as
    ``precision/<first>/to_<second>``; it needs no exact gradient.

    The curves over ``precision/step``, which are also logged, are the agreement
    (:class:`phantomgrad.Agreement`) with the exact gradient, the residuals of that gradient, and
    the largest spectral radii of
    :math:`\partial F / \partial h` and of
    :math:`\lambda\, \partial F / \partial h + (1 - \lambda) I` at the equilibria of the step.

    ``solver`` finds the tight equilibrium, starting from that of the step, and ``adjoint`` solves
    the adjoint equation there; :math:`\lambda` is ``damping``. An estimator that takes the inverse
    of the forward solve gets that of the layer's solver, started from zero.
    """

    def __init__(
        self,
        estimators: Mapping[str, GradientEstimator],
        solver: Solver,
        adjoint: LinearSolver | None = None,
        every_n_steps: int = 100,
        damping: float = 0.5,
        iterations: int = 50,
        pairs: Sequence[tuple[str, str]] = (),
    ) -> None:
        super().__init__()
        check_at_least("every_n_steps", every_n_steps, 0)
        check_at_least("iterations", iterations, 1)
        check_damping(damping)
        if not all(len(pair) == 2 and {*pair} <= estimators.keys() for pair in pairs):
            raise ValueError(f"pairs must be pairs of names of estimators, got {pairs}")
        self._pairs = pairs
        self._estimators, self._solver, self._adjoint = dict(estimators), solver, adjoint or solver
        self._every, self._damping, self._iterations = every_n_steps, damping, iterations
        self._watched = ExitStack()
        self._passes: dict[DEQ, Pass] = {}

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for name, estimator in self._estimators.items():
            try:
                for layer in layers_of(pl_module):
                    estimator.adapt_solver(layer.solver)
            except ValueError as error:
                raise UserError(f"measure.precision.estimators: {name}: {error}") from error

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        step, steps = trainer.global_step, self.curves.get("precision/step")
        if self._every and step % self._every == 0 and not (steps and steps[-1] == step):
            self._passes.clear()
            self._watched = watch(pl_module, self._on_pass)

    def on_before_backward(self, *_: Any) -> None:
        self._watched.close()

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        passes = [p for p in self._passes.values() if p.reached]
        self._passes.clear()
        if not passes:
            return
        with trainer.precision_plugin.forward_context():
            values = self._measure(passes)
        self.keep({"precision/step": trainer.global_step, **values})
        # The module's log would repeat them at every step of the epoch.
        for logger in trainer.loggers:
            logger.log_metrics(values, step=trainer.global_step)

    def _on_pass(self, layer: DEQ, f: Map, z: Tensor, attached: Tensor) -> None:
        if torch.is_grad_enabled():
            self._passes[layer] = Pass(layer, f, z, attached)

    def _measure(self, passes: list[Pass]) -> dict[str, float]:
        exact: list[Tensor] = []
        estimates: dict[str, list[Tensor]] = {name: [] for name in self._estimators}
        by_layer: dict[str, list[float]] = defaultdict(list)
        for captured in passes:
            with captured.replay() as (f, z, v, wanted):
                found = exact_gradient(f, z, v, wanted, solver=self._solver, adjoint=self._adjoint)
                exact += found.gradient
                for name, estimator in self._estimators.items():
                    # The run's own solve may not have kept its inverse.
                    if getattr(estimator, "preconditioner", None) == "forward":
                        solver = estimator.adapt_solver(captured.solver)
                        estimator = estimator.after(solver.solve(f, torch.zeros_like(z)))
                    estimates[name] += estimated_gradient(f, z, v, estimator, wanted)
                damped = partial(_damped, f, self._damping)
                for name, by_sample in (
                    ("exact/residual", found.residual),
                    ("exact/adjoint_residual", found.adjoint_residual),
                    ("spectral_radius/F", radii(f, z, self._iterations)),
                    ("spectral_radius/F_damped", radii(damped, z, self._iterations)),
                ):
                    by_layer[name].append(float(by_sample.max()))
        values = {
            f"{name}/{quantity}": value
            for name, estimate in estimates.items()
            for quantity, value in agreement(estimate, exact)._asdict().items()
        }
        values |= {
            f"{one}/to_{other}": agreement(estimates[one], estimates[other]).cosine
            for one, other in self._pairs
        }
        values |= {name: max(layers) for name, layers in by_layer.items()}
        return {f"precision/{name}": value for name, value in values.items()}


def _damped(f: Map, damping: float, h: Tensor) -> Tensor:
    return torch.lerp(h, f(h).to(h.dtype), damping)
