"""The Jacobian of a map: products with it, its spectral radius, its regularisation."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from phantomgrad.checks import check_at_least
from phantomgrad.gradients.linearization import Linearization, check_recordable, pullback
from phantomgrad.solvers import Map
from phantomgrad.solvers.base import flat

__all__ = ["Linearization", "jacobian_regularizer", "spectral_radius"]


def spectral_radius(
    f: Map,
    z: Tensor,
    *,
    iterations: int = 100,
    estimator: Literal["norm", "rayleigh"] = "norm",
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Estimate the spectral radius of :math:`J = \partial f / \partial z`, per sample, ``(B,)``.

    Power iteration with :math:`J^\top`, whose eigenvalues are those of J, from a Gaussian start.

    Args:
        f: the map.
        z: where the Jacobian is taken, ``(B, *state)``.
        iterations: number of products; the error decays like the ratio of the two largest
            eigenvalues in modulus to this power.
        estimator: ``"norm"``, the geometric mean of ``|J^T v| / |v|`` over the last half of the
            iterations, right for complex and tied eigenvalues too; or ``"rayleigh"``,
            ``|v^T J v| / |v|^2`` of the last one, as in earlier work, which is right only for a
            simple real dominant eigenvalue.
        generator: for the start.

    Raises:
        RuntimeError: in inference mode.
    """
    check_at_least("iterations", iterations, 1)
    if estimator not in ("norm", "rayleigh"):
        raise ValueError(f"estimator must be 'norm' or 'rayleigh', got {estimator!r}")
    at = Linearization(f, z)
    v = _normalized(torch.empty_like(z).normal_(generator=generator))[0]
    logs, rayleigh = [], torch.zeros(z.shape[0], dtype=z.dtype, device=z.device)
    for _ in range(iterations):
        w = at.vjp(v)
        rayleigh = (flat(w) * flat(v)).sum(dim=1).abs()
        v, size = _normalized(w)
        logs.append(size.log())
    if estimator == "rayleigh":
        return rayleigh
    return torch.stack(logs[iterations // 2 :]).mean(dim=0).exp()


def _normalized(v: Tensor) -> tuple[Tensor, Tensor]:
    size = torch.linalg.vector_norm(flat(v), dim=1)
    scale = size.clamp_min(torch.finfo(v.dtype).tiny).view(-1, *[1] * (v.dim() - 1))
    return v / scale, size


def jacobian_regularizer(
    f: Map, z: Tensor, *, samples: int = 1, generator: torch.Generator | None = None
) -> Tensor:
    r"""Hutchinson estimate of :math:`\|J\|_F^2 / N`, a scalar to add to a loss.

    .. math:: \frac{1}{M} \sum_{m=1}^{M} \frac{\|v_m^\top J\|^2}{N}, \qquad v_m \sim
              \mathcal{N}(0, I), \quad N \text{ the number of entries of } z

    (Bai et al., 2021). The gradient reaches the parameters and inputs of ``f``, and also what
    ``z`` depends on if ``z`` is on a graph; pass ``z.detach()`` for the usual form. Under
    ``torch.no_grad`` it is a number alone. Half-precision entries are summed in float32.

    Raises:
        RuntimeError: in inference mode.
    """
    check_at_least("samples", samples, 1)
    check_recordable()
    recorded = torch.is_grad_enabled()
    z = z if recorded and z.requires_grad else z.detach().requires_grad_()
    with torch.enable_grad():
        fz = f(z)
        found = [_squared_product(fz, z, generator) for _ in range(samples)]
        mean = torch.stack(found).mean()
    return mean if recorded else mean.detach()


def _squared_product(fz: Tensor, z: Tensor, generator: torch.Generator | None) -> Tensor:
    """Return ``|v^T J|^2 / N`` of one v."""
    v = torch.empty_like(fz).normal_(generator=generator)
    product = pullback(fz, z, v, create_graph=True)
    return product.to(torch.promote_types(z.dtype, torch.float32)).square().sum() / z.numel()
