"""Broyden's method as textbooks write it, without the books: what the method usually costs."""

from __future__ import annotations

import torch
from torch import Tensor

from phantomgrad.solvers import Map


def plain_broyden(f: Map, z0: Tensor, evaluations: int) -> Tensor:
    r"""Return the last iterate of limited-memory Broyden, :math:`H_k = -I + \sum_j u_j v_j^\top`.

    It stores both vectors of every update and multiplies by H three times an iteration.
    """
    batch, memory = z0.shape[0], max(evaluations - 1, 1)
    z = z0.reshape(batch, -1)
    us = z.new_empty(batch, memory, z.shape[1])
    vs = torch.empty_like(us)

    def g(z: Tensor) -> Tensor:
        return f(z.view_as(z0)).reshape_as(z) - z

    def product(x: Tensor, left: Tensor, right: Tensor) -> Tensor:
        coefficients = torch.bmm(x.unsqueeze(1), left.mT)  # (B, 1, k)
        return torch.bmm(coefficients, right).squeeze(1) - x

    gz = g(z)
    step = gz
    for k in range(evaluations - 1):
        z = z + step
        change, gz = gz, g(z)
        change = gz - change
        v = product(step, us[:, :k], vs[:, :k])
        u = step - product(change, vs[:, :k], us[:, :k])
        us[:, k] = u / (v * change).sum(dim=1, keepdim=True)
        vs[:, k] = v
        step = -product(gz, vs[:, : k + 1], us[:, : k + 1])
    return z.view_as(z0)
