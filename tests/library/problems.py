"""Maps with known equilibria and gradients, and dense references independent of the library.

A state is ``(B, D)`` by default; Jacobians are ``(B, D, D)``, row = output.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from phantomgrad.solvers.base import ParametricMap

Map = Callable[[Tensor], Tensor]


def contraction(batch: int, size: int, norm: float, seed: int = 0) -> Tensor:
    """Random matrices ``(B, D, D)`` of the given spectral norm."""
    generator = torch.Generator().manual_seed(seed)
    w = torch.randn(batch, size, size, generator=generator)
    return norm * w / torch.linalg.matrix_norm(w, ord=2, keepdim=True)


@dataclass(frozen=True)
class Affine:
    """``f(z) = W z + b`` with one W per sample: everything about it has a closed form."""

    weight: Tensor  # (B, D, D)
    bias: Tensor  # (B, D)

    @classmethod
    def random(cls, batch: int = 3, size: int = 5, norm: float = 0.8, seed: int = 0) -> Affine:
        """A contraction of the given norm; its parameters require grad."""
        bias = torch.randn(batch, size, generator=torch.Generator().manual_seed(seed + 1))
        return cls(contraction(batch, size, norm, seed).requires_grad_(), bias.requires_grad_())

    def __call__(self, z: Tensor) -> Tensor:
        flat = z.reshape(self.bias.shape)
        return (torch.bmm(self.weight, flat.unsqueeze(2)).squeeze(2) + self.bias).reshape(z.shape)

    @property
    def zeros(self) -> Tensor:
        """A start."""
        return torch.zeros_like(self.bias)

    @torch.no_grad()
    def equilibrium(self) -> Tensor:
        """``(I - W)^-1 b``."""
        return torch.linalg.solve(torch.eye(self.bias.shape[1]) - self.weight, self.bias)

    @torch.no_grad()
    def adjoint(self, v: Tensor) -> Tensor:
        """``(I - W^T)^-1 v``: the exact gradient with respect to ``bias``."""
        return torch.linalg.solve(torch.eye(self.bias.shape[1]) - self.weight.mT, v)

    def exact_gradient(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of ``<v, z*>`` with respect to ``weight`` and ``bias``."""
        u = self.adjoint(v)
        return u.unsqueeze(2) * self.equilibrium().unsqueeze(1), u


@dataclass
class Counted:
    """A map that counts its calls and records its arguments."""

    f: Map
    points: list[Tensor] = field(default_factory=list)

    def __call__(self, z: Tensor) -> Tensor:
        self.points.append(z.detach().clone())
        return self.f(z)

    @property
    def calls(self) -> int:
        return len(self.points)


class Parametric(ParametricMap):
    """A map ``f(z, *tensors)`` that knows its tensors, as that of a layer does."""

    def __init__(self, f: Callable[..., Tensor], *tensors: Tensor) -> None:
        self.f, self._tensors = f, list(tensors)

    def __call__(self, z: Tensor) -> Tensor:
        return self.f(z, *self._tensors)

    @property
    def tensors(self) -> list[Tensor]:
        return self._tensors

    def with_tensors(self, tensors: list[Tensor]) -> Parametric:
        return Parametric(self.f, *tensors)


class TanhCell(nn.Module):
    """``tanh(W z + x)``, a contraction while the spectral norm of W is below one."""

    def __init__(self, size: int = 4, norm: float = 0.9, seed: int = 3) -> None:
        super().__init__()
        self.linear = nn.Linear(size, size)
        generator = torch.Generator().manual_seed(seed + 1)
        with torch.no_grad():
            self.linear.weight.copy_(contraction(1, size, norm, seed)[0])
            self.linear.bias.copy_(0.3 * torch.randn(size, generator=generator))

    def forward(self, z: Tensor, x: Tensor) -> Tensor:
        return torch.tanh(self.linear(z) + x)


class CoupledCell(nn.Module):
    """Two states, ``(B, D)`` and ``(B, 2, 3)``, each driven by the other."""

    def __init__(self, size: int = 4) -> None:
        super().__init__()
        self.there = nn.Linear(size, 6)
        self.back = nn.Linear(6, size)

    def forward(self, z: tuple[Tensor, Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
        a, b = z
        return (
            0.5 * torch.tanh(self.back(b.flatten(1)) + x),
            0.5 * torch.tanh(self.there(a)).unflatten(1, (2, 3)),
        )


class Chain(nn.Module):
    """Each row hears of the row before: ``tanh(0.9 z[i-1] + x)``."""

    def forward(self, z: Tensor, x: Tensor) -> Tensor:
        return torch.tanh(0.9 * z.roll(1, 0) + x)


def dense_jacobian(f: Map, z: Tensor) -> Tensor:
    """``df/dz`` of each sample, by one backward pass per output; samples are independent."""
    batch, size = z.shape[0], z[0].numel()
    summed = torch.autograd.functional.jacobian(lambda z: f(z).sum(dim=0), z)
    return summed.reshape(size, batch, size).transpose(0, 1)


def newton_equilibrium(f: Map, z: Tensor, steps: int = 30) -> Tensor:
    """The equilibrium to machine precision, by Newton's method with dense Jacobians."""
    z = z.detach()
    for _ in range(steps):
        g = (f(z) - z).detach().flatten(1)
        eye = torch.eye(g.shape[1])
        z = z + torch.linalg.solve(eye - dense_jacobian(f, z), g).reshape(z.shape)
    assert torch.linalg.vector_norm(f(z) - z) < 1e-13
    return z.detach()


def exact_gradient(
    f: Map, z: Tensor, v: Tensor, wanted: list[Tensor], series: tuple[int, float] | None = None
) -> tuple[Tensor, ...]:
    """``df/dtheta^T (I - J)^-T v`` at ``z``, with dense matrices.

    ``series``: steps and damping of the phantom gradient, which truncates the Neumann series.
    """
    jacobian, flat = dense_jacobian(f, z).mT, v.flatten(1).unsqueeze(2)
    eye = torch.eye(len(jacobian[0]))
    if series is None:
        u = torch.linalg.solve(eye - jacobian, flat)
    else:
        steps, damping = series
        b = damping * jacobian + (1 - damping) * eye
        u = damping * sum(torch.linalg.matrix_power(b, i) @ flat for i in range(steps))
    return torch.autograd.grad(f(z), wanted, u.reshape(v.shape))


def relative_error(ours: tuple[Tensor, ...], reference: tuple[Tensor, ...]) -> float:
    """``|ours - reference| / |reference|`` over all tensors together."""
    a, b = (torch.cat([t.detach().flatten() for t in group]) for group in (ours, reference))
    return float(torch.linalg.vector_norm(a - b) / torch.linalg.vector_norm(b))


class _Saved:
    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


@contextmanager
def saved_tensors() -> Iterator[Callable[[], int]]:
    """Yield a function that counts the tensors some autograd graph keeps for its backward."""
    alive: weakref.WeakSet[_Saved] = weakref.WeakSet()

    def pack(tensor: Tensor) -> _Saved:
        saved = _Saved(tensor.detach())  # a saved output with its graph would be a cycle
        alive.add(saved)
        return saved

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved.tensor):
        yield lambda: len(alive)


class Dispatched(TorchDispatchMode):
    """Calls ``see(operation, arguments)`` at every operation of torch, views included."""

    def __init__(self, see: Callable[[Any, tuple[Any, ...]], object]) -> None:
        super().__init__()
        self.see = see

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        self.see(func, args)
        return func(*args, **(kwargs or {}))


def golden_file(name: str) -> Any:
    """The content of a file of golden/."""
    return json.loads((Path(__file__).parent / "golden" / f"{name}.json").read_text())


class GoldenCell(nn.Module):
    """``tanh(z W^T + x U^T + b)``, the problem of four files in golden/.

    ``inputs`` is its batch, of two samples.
    """

    def __init__(self, scale: float = 0.45) -> None:
        super().__init__()
        i, j = torch.arange(5.0)[:, None], torch.arange(5.0)
        self.weight = nn.Parameter(scale * torch.sin(1 + (i + 1) * (2 * j + 1) + j * j))
        self.bias = nn.Parameter(0.1 * torch.sin(4 + j))
        self.input = 0.5 * torch.cos(2 + 5 * i + 3 * j)
        self.inputs = torch.cos(1 + 2 * i[:2] + 5 * j)

    def forward(self, z: Tensor, x: Tensor) -> Tensor:
        return torch.tanh(z @ self.weight.mT + x @ self.input.mT + self.bias)


def looped(f: Map, z0: Tensor, value: Tensor, evaluations: int, damping: float = 0.5) -> Tensor:
    """``value`` on a graph of all iterates, y and z as in the paper; each sample is one of them."""
    y = z = z0
    result, missing = torch.zeros_like(value), torch.ones(len(z0), 1, dtype=torch.bool)
    for evaluation in range(evaluations - 1):
        if evaluation % 2 == 0:
            y = iterate = (1 - damping) * y + damping * f(z)
        else:
            z = iterate = (1 - damping) * z + damping * f(y)
        found = missing & ((iterate - value).detach().abs().amax(dim=1, keepdim=True) < 1e-12)
        result, missing = torch.where(found, iterate, result), missing & ~found
    assert not missing.any()
    return result
