"""The precision of gradient estimators along a training run: the instrument of Figure 2."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from lightning import LightningModule, Trainer
from torch import Tensor

from phantomgrad.checks import check_at_least, check_damping
from phantomgrad.deq import DEQ
from phantomgrad.diagnostics import ExactGradient, agreement, estimated_gradient, exact_gradient
from phantomgrad.gradients import GradientEstimator
from phantomgrad.jacobian import spectral_radius
from phantomgrad.solvers import Map, Solver
from phantomgrad_suite.callbacks.capture import Listener, Pass, layers_of
from phantomgrad_suite.callbacks.series import Series
from phantomgrad_suite.runs.errors import UserError


class GradientPrecision(Series):
    r"""Compares gradient estimators with the exact gradient, on the steps of a training run.

    Every n-th optimizer step, on its own batch, weights and dropout masks, with the cotangent that
    the loss sends to each equilibrium layer (to its last pass, if the step makes several), the
    gradient by the trainable parameters of the cells is taken by each estimator at the equilibrium
    as it was found, and exactly, at a tightly solved one; all layers make one long vector (Geng et
    al., 2021, fig. "real_cos"). Looking at a run does not change it, and takes time that counts as
    the step's. Under several processes, each looks at its own part of the batch.

    The curves, which also go to the loggers step by step:

    - ``precision/step``: optimizer steps done before; the axis of all others.
    - ``precision/<estimator>/cosine`` and ``/norm_ratio``: see :class:`phantomgrad.Agreement`.
    - ``precision/exact/residual`` and ``/adjoint_residual``: how exact the exact one is; the
      largest over layers and samples. They are relative to the whole state: a loss that blows up
      its tiny entries (by normalising each node, as on Chains) has a less exact gradient.
    - ``precision/spectral_radius/F`` and ``/F_damped``: of :math:`\partial F / \partial h` and of
      :math:`\lambda\, \partial F / \partial h + (1 - \lambda) I` at the equilibrium as it was
      found; the largest over layers and samples.

    Args:
        estimators: what is compared, by name.
        solver: finds the tight equilibrium, from the one of the step.
        adjoint: solves the adjoint equation there; by default like ``solver``.
        every_n_steps: how often; 0 turns it off.
        damping: :math:`\lambda` of the damped map.
        iterations: of the power method, each a vector-Jacobian product.

    Raises:
        ValueError: a setting is out of range, or an estimator needs a recorded solve.
    """

    def __init__(
        self,
        estimators: Mapping[str, GradientEstimator],
        solver: Solver,
        adjoint: Solver | None = None,
        every_n_steps: int = 100,
        damping: float = 0.5,
        iterations: int = 50,
    ) -> None:
        super().__init__()
        check_at_least("every_n_steps", every_n_steps, 0)
        check_at_least("iterations", iterations, 1)
        check_damping(damping)
        for name, estimator in estimators.items():
            if estimator.needs_recorded_solve:
                raise ValueError(
                    "estimators must attach a given equilibrium, "
                    f"got {type(estimator).__name__} as {name!r}"
                )
        self._estimators, self._solver, self._adjoint = dict(estimators), solver, adjoint or solver
        self._every, self._damping, self._iterations = every_n_steps, damping, iterations
        self._listener = Listener(self._hear)
        self._passes: dict[DEQ, Pass] = {}

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Refuse a model without anything to look at.

        Raises:
            UserError: no cell of an equilibrium layer has a trainable parameter.
        """
        cells = [layer.cell for layer in layers_of(pl_module)]
        if self._every and not any(p.requires_grad for cell in cells for p in cell.parameters()):
            raise UserError(
                "GradientPrecision needs an equilibrium layer whose cell has trainable parameters, "
                f"got {len(cells)} layers without: leave callbacks.precision out"
            )

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Listen to the equilibrium layers during the first batch of every n-th step."""
        step, seen = trainer.global_step, self._curves.get("precision/step")
        if self._every and step % self._every == 0 and not (seen and seen[-1] == step):
            self._passes.clear()
            self._listener.start(pl_module)

    def on_before_backward(
        self, trainer: Trainer, pl_module: LightningModule, loss: Tensor
    ) -> None:
        """Stop listening."""
        self._listener.stop()

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Measure what was heard, now that the cotangents are known; keep and log it."""
        passes = [p for p in self._passes.values() if p.reached]
        self._passes.clear()
        if not passes:
            return
        with trainer.precision_plugin.forward_context():
            values = _summary([self._look(p) for p in passes])
        self.keep({"precision/step": trainer.global_step, **values})
        # Not by the module's log: until the end of the epoch that would repeat it at every step.
        for logger in trainer.loggers:
            logger.log_metrics(values, step=trainer.global_step)

    def _hear(self, layer: DEQ, inputs: tuple[Any, ...], output: Any) -> None:
        if torch.is_grad_enabled():
            self._passes[layer] = Pass(layer, inputs, output)

    def _look(self, heard: Pass) -> _Look:
        with heard.replay() as (f, z, v, wanted):
            return _Look(
                exact_gradient(f, z, v, wanted, solver=self._solver, adjoint=self._adjoint),
                {n: estimated_gradient(f, z, v, e, wanted) for n, e in self._estimators.items()},
                self._radius(f, z),
                self._radius(lambda h: torch.lerp(h, f(h).to(h.dtype), self._damping), z),
            )

    def _radius(self, f: Map, z: Tensor) -> float:
        generator = torch.Generator(device=z.device).manual_seed(0)
        radii = spectral_radius(f, z, iterations=self._iterations, generator=generator)
        return float(radii.max())


@dataclass(frozen=True)
class _Look:
    """What was measured at one layer."""

    exact: ExactGradient
    estimates: dict[str, tuple[Tensor, ...]]
    radius: float
    damped_radius: float


def _summary(looks: list[_Look]) -> dict[str, float]:
    """Return the values of a step: gradients over all layers together, the largest of the rest."""
    exact = [g for look in looks for g in look.exact.gradient]
    values: dict[str, float] = {}
    for name in looks[0].estimates:
        cosine, norm_ratio = agreement([g for x in looks for g in x.estimates[name]], exact)
        values[f"precision/{name}/cosine"] = cosine
        values[f"precision/{name}/norm_ratio"] = norm_ratio
    return values | {
        "precision/exact/residual": max(float(x.exact.residual.max()) for x in looks),
        "precision/exact/adjoint_residual": max(
            float(x.exact.adjoint_residual.max()) for x in looks
        ),
        "precision/spectral_radius/F": max(x.radius for x in looks),
        "precision/spectral_radius/F_damped": max(x.damped_radius for x in looks),
    }
