"""Learning-rate schedules over the steps of a whole run, for ``schedule_by: step`` of a task."""

import math

from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LRScheduler

from phantomgrad.checks import check_at_least


def cosine_by_step(
    optimizer: Optimizer, *, steps: int, minimum: float = 1e-6, horizon: int | None = None
) -> LRScheduler:
    r"""Return a cosine decay without restarts (Loshchilov and Hutter, 2017).

    .. math:: \eta_t = \eta_{\min} + (\eta_0 - \eta_{\min}) \frac{1 + \cos(\pi t / T)}{2}

    T is the number of ``steps`` of the run, or the ``horizon`` of a longer run that it is the
    beginning of; :math:`\eta_{\min}` is ``minimum``.
    """
    if horizon is not None:
        check_at_least("horizon", horizon, steps)
    return CosineAnnealingLR(optimizer, T_max=horizon or steps, eta_min=minimum)


def warmup_cosine(optimizer: Optimizer, *, steps: int, warmup: int) -> LRScheduler:
    r"""Return a linear warm-up followed by a cosine decay to 0.

    .. math:: \eta_t = \eta_0 \frac{\max(t, 1)}{W} \quad (t < W), \qquad
              \eta_t = \eta_0 \frac{1 + \cos(\pi t / T)}{2} \quad (t \ge W)

    T are the ``steps`` of the run, W is ``warmup``. As in the official code of the DEQ-Transformer,
    the cosine runs from step 0, not from W.
    """
    check_at_least("warmup", warmup, 0)

    def factor(step: int) -> float:
        if step < warmup:
            return max(step, 1) / warmup
        return (1 + math.cos(math.pi * min(step, steps) / steps)) / 2

    return LambdaLR(optimizer, factor)


def warmup_constant(optimizer: Optimizer, *, steps: int, warmup: int) -> LRScheduler:
    """Return a linear warm-up over ``warmup`` steps, after which the rate is constant."""
    check_at_least("warmup", warmup, 1)
    return LambdaLR(optimizer, lambda step: min(1.0, max(step, 1) / warmup))
