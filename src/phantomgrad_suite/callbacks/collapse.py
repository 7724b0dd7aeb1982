"""Detection of collapsing training, as the paper reports it on PPI for every gradient."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lightning import LightningModule, Trainer

from phantomgrad.checks import check_at_least, check_rate
from phantomgrad_suite.callbacks.curves import History, Series
from phantomgrad_suite.runs.errors import UserError

log = logging.getLogger(__name__)
Curves = Mapping[str, Sequence[float]]

_LEARNT = 0.1  # of a constant predictor's metric: a smaller improvement on it may be noise


class Collapse(Series):
    r"""Warns when training collapses, once for each kind of sign.

    A sign must last ``patience`` epochs. The curves, of zeros and ones, are:

    - ``collapse/loss``: the training loss exceeds ``loss_factor`` times its minimum;
    - ``collapse/metric``: the validation metric, without validation data the test metric, keeps
      less than ``kept`` of its best improvement on a constant predictor;
    - ``collapse/solves``: less than ``solved`` of the forward or of the adjoint solves converge.

    The first sign ends the run if ``stop`` is set.
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
        check_rate("kept", kept)
        check_rate("solved", solved)
        self._patience, self._loss_factor = patience, loss_factor
        self._kept, self._solved, self._stop = kept, solved, stop

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        task: Any = pl_module
        loop: Any = trainer
        (history,) = (c for c in loop.callbacks if isinstance(c, History))
        part = "validation" if "validation" in task.evaluation_sets else "test"
        sense = 1 if task.metric_mode == "max" else -1
        constant = loop.datamodule.constant_score(part)
        signs = self.signs(history.curves, f"{part}/{task.metric}", sense, constant)
        warned = {name for name, curve in self.curves.items() if any(curve)}
        self.keep({name: float(bool(found)) for name, found in signs.items()})
        new = [sign for name, found in signs.items() if name not in warned for sign in found]
        line = (
            f"training collapsed: {'; '.join(new)}. Look at the solves, the norms of W and the "
            "learning rate"
        )
        if new and self._stop:
            raise UserError(f"{line} (measure.collapse.stop ends the run here)")
        if new and trainer.is_global_zero:
            log.warning(line)

    def signs(
        self, curves: Curves, metric: str, sense: int = 1, constant: float | None = None
    ) -> dict[str, list[str]]:
        """Return the signs in the last epochs, by the name of their curve.

        ``constant`` is the metric of a constant predictor; ``sense`` is -1 for one to minimise.
        """

        def least(best: float) -> float:
            if constant is None or sense * (best - constant) < _LEARNT * abs(constant):
                return math.nan
            return constant + self._kept * (best - constant)

        return {
            "collapse/loss": self._sign(curves, "train/loss", -1, lambda x: self._loss_factor * x),
            "collapse/metric": self._sign(curves, metric, sense, least),
            "collapse/solves": [
                *self._sign(curves, "solver/converged", 1, lambda _: self._solved),
                *self._sign(curves, "adjoint/converged", 1, lambda _: self._solved),
            ],
        }

    def _sign(
        self, curves: Curves, name: str, sense: int, limit: Callable[[float], float]
    ) -> list[str]:
        """Return whether a curve has lately been beyond a limit that depends on its best value."""
        points = [(i, x) for i, x in enumerate(curves.get(name, ()), 1) if not math.isnan(x)]
        before, recent = points[: -self._patience], points[-self._patience :]
        epoch, best = max(before, key=lambda p: sense * p[1], default=(0, math.nan))
        beyond = [sense * x < sense * limit(best) for _, x in recent]  # nothing is beyond nan
        if len(recent) < self._patience or not all(beyond):
            return []
        start = f" from {best:.4g} (epoch {epoch})" if before else ""
        return [f"{name} went{start} to {recent[-1][1]:.4g} (since epoch {recent[0][0]})"]
