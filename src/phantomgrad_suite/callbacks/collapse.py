"""A watch on training that breaks down, as the paper met it on PPI with every gradient."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from lightning import LightningModule, Trainer
from tqdm import tqdm

from phantomgrad.checks import check_at_least
from phantomgrad.models import ImplicitGraphLayer
from phantomgrad_suite.callbacks.history import History
from phantomgrad_suite.callbacks.series import Series
from phantomgrad_suite.runs.errors import UserError

log = logging.getLogger(__name__)

Curve = Sequence[float]
_LEARNT = 0.1  # of a constant predictor's metric: less above it is no more than noise


@dataclass(frozen=True)
class Sign:
    """A metric that has been bad for some epochs.

    Attributes:
        metric: its name.
        epoch: the first of these epochs, from 1.
        value: in the last one.
        best: its best value before, ``None`` where it was never evaluated before.
        best_epoch: the epoch of that value.
    """

    metric: str
    epoch: int
    value: float
    best: float | None = None
    best_epoch: int | None = None

    def __str__(self) -> str:
        before = "" if self.best is None else f" from {self.best:.4g} (epoch {self.best_epoch})"
        return f"{self.metric} went{before} to {self.value:.4g} (since epoch {self.epoch})"


class Collapse(Series):
    r"""Warns, once for each sign, when training collapses, and keeps the signs for the record.

    A sign must last ``patience`` epochs. The signs, each a curve of zeros and ones:

    - ``collapse/loss``: the training loss is above ``loss_factor`` times its minimum;
    - ``collapse/metric``: with validation data on these, else on the test data, the metric keeps
      less than ``kept`` of what its best value had over that of a constant predictor;
    - ``collapse/solves``: less than ``solved`` of the forward or of the adjoint solves converge.

    Args:
        patience: see above.
        loss_factor: likewise, above 1.
        kept: likewise, in [0, 1).
        solved: likewise, in [0, 1].
        stop: end the run at the first sign.

    Raises:
        ValueError: a setting is out of range.
    """

    def __init__(
        self,
        *,
        patience: int = 3,
        loss_factor: float = 10.0,
        kept: float = 0.25,
        solved: float = 0.5,
        stop: bool = False,
    ) -> None:
        super().__init__()
        check_at_least("patience", patience, 1)
        if not loss_factor > 1:
            raise ValueError(f"loss_factor must be above 1, got {loss_factor}")
        if not 0 <= kept < 1:
            raise ValueError(f"kept must lie in [0, 1), got {kept}")
        if not 0 <= solved <= 1:
            raise ValueError(f"solved must lie in [0, 1], got {solved}")
        self._patience, self._loss_factor = patience, loss_factor
        self._kept, self._solved, self._stop = kept, solved, stop

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Look at the epochs so far.

        Raises:
            UserError: there is a sign, and the run is to end then.
        """
        curves = _history(trainer).curves
        signs = self.signs(curves, *_watched(trainer, pl_module))
        before = self.curves()
        self.keep({f"collapse/{kind}": float(bool(found)) for kind, found in signs.items()})
        fresh = {kind for kind in signs if not any(before.get(f"collapse/{kind}", ()))}
        new = [sign for kind in signs if kind in fresh for sign in signs[kind]]
        if not new:
            return
        line = f"training collapsed: {'; '.join(map(str, new))}. {_advice(trainer, pl_module)}"
        if self._stop:
            raise UserError(f"{line} (callbacks.collapse.stop ends the run here)")
        if trainer.is_global_zero:
            with tqdm.external_write_mode():  # on a line of its own, beside a progress bar
                log.warning(line)

    def signs(
        self,
        curves: Mapping[str, Curve],
        metric: str = "",
        good: int = 1,
        constant: float | None = None,
    ) -> dict[str, list[Sign]]:
        """Return the signs of each kind that there are at the end of some epochs.

        Args:
            curves: values by epoch, ``nan`` where there is none.
            metric: the name of the curve that should be good.
            good: 1 where large values are, -1 where small ones are.
            constant: its value for a constant predictor, where it is known.
        """

        def floor(best: float) -> float | None:
            if constant is None or good * (best - constant) < _LEARNT * abs(constant):
                return None
            return constant + self._kept * (best - constant)

        rules: list[tuple[str, str, int, Callable[[float], float | None]]] = [
            ("loss", "train/loss", -1, lambda best: self._loss_factor * best),
            ("metric", metric, good, floor),
            ("solves", "solver/converged", 1, lambda _: self._solved),
            ("solves", "adjoint/converged", 1, lambda _: self._solved),
        ]
        found: dict[str, list[Sign]] = {kind: [] for kind, *_ in rules}
        for kind, name, sense, limit in rules:
            sign = _sign(name, curves.get(name, ()), self._patience, sense, limit)
            found[kind] += [sign] if sign else []
        return found


def _sign(
    name: str,
    curve: Curve,
    patience: int,
    good: int,
    limit_after: Callable[[float], float | None],
) -> Sign | None:
    points = [(e, value) for e, value in enumerate(curve, start=1) if not math.isnan(value)]
    before, recent = points[:-patience], points[-patience:]
    if len(recent) < patience:
        return None
    best_epoch, best = max(before, key=lambda point: good * point[1], default=(None, math.nan))
    limit = limit_after(best)
    # With nothing before, a limit that depends on it is nan, and nothing is beyond that.
    if limit is None or not all(good * value < good * limit for _, value in recent):
        return None
    value = recent[-1][1]
    return Sign(name, recent[0][0], value, *((best, best_epoch) if before else ()))


def _history(trainer: Trainer) -> History:
    return next(c for c in trainer.callbacks if isinstance(c, History))  # type: ignore[attr-defined]


def _watched(trainer: Trainer, task: Any) -> tuple[str, int, float | None]:
    part = "validation" if "validation" in task.evaluation_sets else "test"
    data: Any = getattr(trainer, "datamodule", None)
    constant = data.constant_score(part) if data is not None else None
    return f"{part}/{task.metric}", {"max": 1, "min": -1}[task.metric_mode], constant


def _advice(trainer: Trainer, module: LightningModule) -> str:
    """Say what to look at, with the present numbers."""
    metrics = trainer.callback_metrics
    solves = [
        f"{name}: residual {float(metrics[f'{name}/residual']):.2g} after "
        f"{float(metrics[f'{name}/evaluations']):.0f} evaluations"
        for name in ("solver", "adjoint")
        if f"{name}/residual" in metrics
    ]
    rate = trainer.optimizers[0].param_groups[0]["lr"]
    said = [*solves, *_norms(module), f"learning rate {rate:.3g}"]
    return f"Look at the solves, the norms of W and the learning rate ({', '.join(said)})"


@torch.no_grad()
def _norms(module: LightningModule) -> list[str]:
    """Say how large the W of IGNN is that comes closest to its bound."""
    found = [
        (float(layer.weight.abs().sum(dim=1).max()), layer.bound)
        for layer in module.modules()
        if isinstance(layer, ImplicitGraphLayer)
    ]
    if not found:
        return []
    norm, bound = max(found, key=lambda pair: pair[0] / pair[1])
    return [f"‖W‖ {norm:.4g} of at most {bound:.4g}"]
