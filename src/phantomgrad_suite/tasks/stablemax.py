"""Stablemax, the replacement for softmax with which recursive reasoners are trained."""

import torch
from torch import Tensor


def log_stablemax(logits: Tensor) -> Tensor:
    r"""Return log-probabilities over the last dimension (Prieto et al., 2025).

    .. math:: p_i = \frac{s(a_i)}{\sum_j s(a_j)}, \qquad
              s(a) = a + 1 \; (a \ge 0), \quad \frac{1}{1 - a} \; (a < 0)

    so that :math:`\log s(a) = \mathrm{sgn}(a) \log(1 + |a|)`: logits have to grow exponentially
    where those of softmax grow linearly. In half precision it is computed in float32.
    """
    a = logits.to(torch.promote_types(logits.dtype, torch.float32))
    sign = torch.ones_like(a).copysign(a)  # abs(a) would have no derivative at zero
    logs = sign * torch.log1p(sign * a)
    return logs - logs.logsumexp(dim=-1, keepdim=True)
