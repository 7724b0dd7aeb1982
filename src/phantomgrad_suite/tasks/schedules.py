"""Learning rates along a whole run."""

from __future__ import annotations

import math

from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LRScheduler

from phantomgrad.checks import check_at_least


def cosine_by_step(
    optimizer: Optimizer, *, steps: int, minimum: float = 1e-6, horizon: int | None = None
) -> LRScheduler:
    r"""Return half a cosine from the rate of the optimizer to ``minimum``, one point a step.

    .. math:: \eta_t = \eta_{\min} + (\eta_0 - \eta_{\min}) \frac{1 + \cos(\pi t / T)}{2}

    (Loshchilov and Hutter, 2017, without restarts.) For ``schedule_by: step`` of a task.

    Args:
        optimizer: whose rates these are.
        steps: T, optimizer steps of the whole run.
        minimum: :math:`\eta_{\min}`.
        horizon: T, where the run is the beginning of a longer one.

    Raises:
        ValueError: the run goes on beyond ``horizon``.
    """
    if horizon is not None:
        check_at_least("horizon", horizon, steps)
    return CosineAnnealingLR(optimizer, T_max=horizon or steps, eta_min=minimum)


def warmup_cosine(optimizer: Optimizer, *, steps: int, warmup: int) -> LRScheduler:
    r"""Return a linear warm-up and, behind it, the rest of half a cosine over all steps, to 0.

    .. math:: \eta_t = \eta_0 \frac{\max(t, 1)}{W} \quad (t < W), \qquad
              \eta_t = \eta_0 \frac{1 + \cos(\pi t / T)}{2} \quad (t \ge W)

    The cosine is that of t, not of t - W, as in the official code of the DEQ-Transformer, whose
    very first step has the full rate. For ``schedule_by: step`` of a task.

    Args:
        optimizer: whose rates these are.
        steps: T, optimizer steps of the whole run.
        warmup: W, steps of the warm-up; 0 for none.

    Raises:
        ValueError: ``warmup`` is no number of steps.
    """
    check_at_least("warmup", warmup, 0)

    def factor(step: int) -> float:
        if step < warmup:
            return max(step, 1) / warmup
        return (1 + math.cos(math.pi * min(step, steps) / steps)) / 2

    return LambdaLR(optimizer, factor)
