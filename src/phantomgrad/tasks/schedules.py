"""Learning rates along a whole run."""

from __future__ import annotations

from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler


def cosine_by_step(optimizer: Optimizer, *, steps: int, minimum: float = 1e-6) -> LRScheduler:
    r"""Return half a cosine from the rate of the optimizer to ``minimum``, one point a step.

    .. math:: \eta_t = \eta_{\min} + (\eta_0 - \eta_{\min}) \frac{1 + \cos(\pi t / T)}{2}

    (Loshchilov and Hutter, 2017, without restarts.) For ``schedule_by: step`` of a task.

    Args:
        optimizer: whose rates these are.
        steps: T, optimizer steps of the whole run.
        minimum: :math:`\eta_{\min}`.
    """
    return CosineAnnealingLR(optimizer, T_max=steps, eta_min=minimum)
