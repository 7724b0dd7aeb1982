"""Exponential moving averages of weights, with which a model is evaluated."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from phantomgrad.checks import check_rate


def weight_average(model: nn.Module, decay: float = 0.999, warmup: bool = False) -> AveragedModel:
    r"""Return a copy of ``model`` whose parameters average those of ``model``.

    After each optimizer step t = 1, 2, ..., ``update_parameters(model)`` makes them

    .. math:: \bar p_t = d_t \bar p_{t-1} + (1 - d_t) \, p_t, \qquad
              d_t = d, \quad \text{or with warm-up} \quad \min\Big(d, \frac{t + 1}{t + 10}\Big) ,

    from the initial weights on. With d = 0.999 these count for the first few thousand steps: a
    shorter run needs the warm-up. The count t is saved with the weights; buffers are copied.
    """
    check_rate("decay", decay)
    average = AveragedModel(model, multi_avg_fn=partial(_update, decay=decay, warmup=warmup))
    average.n_averaged += 1  # a copy of the initial weights
    return average.requires_grad_(False)


@torch.no_grad()
def _update(
    averages: Sequence[Tensor],
    current: Sequence[Tensor],
    step: Tensor | int,
    *,
    decay: float,
    warmup: bool,
) -> None:
    t = int(step)
    weight = 1 - (min(decay, (t + 1) / (t + 10)) if warmup else decay)
    torch._foreach_lerp_(list(averages), list(current), weight)
