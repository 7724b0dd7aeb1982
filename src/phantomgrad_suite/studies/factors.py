"""The matrices of the theorems at one state, written out or known by their products alone.

Everything is in the paper's layout, where the derivative of a by b has the entries
``da_j / db_i``: a matrix acts on cotangents, as backpropagation does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import eye_array
from scipy.sparse.linalg import LinearOperator, aslinearoperator, gmres
from torch import Tensor

from phantomgrad.gradients import (
    GradientEstimator,
    NeumannPhantomGradient,
    UnrolledPhantomGradient,
)
from phantomgrad.solvers import Map
from phantomgrad_suite.studies.spectra import Matrix, SpectrumError, singular_range

Vector = NDArray[np.float64]

_EQUILIBRIUM = 1e-8  # relative residual below which a state passes for an equilibrium
_ACCURACY = 1e-12  # relative residual of the linear solves


class Pullback:
    r"""The linear map from cotangents of ``output`` to cotangents of ``inputs``, and back.

    The transpose is the derivative of the pullback, which is linear in the cotangent.

    Args:
        output: on the graph of ``inputs``.
        inputs: tensors of any shapes.
    """

    def __init__(self, output: Tensor, inputs: Sequence[Tensor]) -> None:
        self._output, self._inputs = output, list(inputs)
        self._transposed: tuple[Tensor, list[Tensor]] | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of entries of ``inputs``, together, and of ``output``."""
        return sum(x.numel() for x in self._inputs), self._output.numel()

    def __call__(self, v: Vector) -> Vector:
        """Return the cotangents of the inputs, one behind the other, for that of the output."""
        return _joined(self._backward(_like(v, self._output), create_graph=False))

    def transposed(self, w: Vector) -> Vector:
        """Return the product of the transpose with ``w``, shaped as a result of the map."""
        if self._transposed is None:
            v = torch.zeros_like(self._output, requires_grad=True)
            self._transposed = v, self._backward(v, create_graph=True)
        v, results = self._transposed
        pieces = np.split(w.ravel(), np.cumsum([x.numel() for x in results])[:-1])
        pairs = [(x, _like(p, x)) for x, p in zip(results, pieces, strict=True) if x.requires_grad]
        if not pairs:
            return np.zeros(v.numel())
        on_graph, weights = zip(*pairs, strict=True)
        return _joined(torch.autograd.grad(on_graph, v, weights, retain_graph=True))

    def _backward(self, v: Tensor, create_graph: bool) -> list[Tensor]:
        if not self._output.requires_grad:
            return [torch.zeros_like(x) for x in self._inputs]
        grads = torch.autograd.grad(
            self._output,
            self._inputs,
            v,
            retain_graph=True,
            create_graph=create_graph,
            allow_unused=True,
            materialize_grads=True,
        )
        return list(grads)


class Factors(ABC):
    r"""The matrices at a state: :math:`\partial F / \partial h`, and so on.

    The whole state is one vector of d entries, samples of a batch and all; the wanted tensors
    together are one of p entries.

    Args:
        f: the map, ``(B, *state)`` to the same shape.
        z: its equilibrium, ``(B, *state)``.
        wanted: what the loss is differentiated by, parameters or inputs that ``f`` closes over.

    Raises:
        ValueError: nothing is wanted, or a wanted tensor does not require grad.
    """

    def __init__(self, f: Map, z: Tensor, wanted: Sequence[Tensor]) -> None:
        if not wanted:
            raise ValueError("wanted must name at least one tensor, got none")
        for i, tensor in enumerate(wanted):
            if not tensor.requires_grad:
                shape = tuple(tensor.shape)
                raise ValueError(f"wanted[{i}] must require grad, got one {shape} that does not")
        self._f, self._wanted = f, list(wanted)
        self._z = z.detach().requires_grad_()
        with torch.enable_grad():
            value = f(self._z)
        residual = torch.linalg.vector_norm((value - z).detach())
        size = torch.linalg.vector_norm(z.detach())
        self._settled = bool(residual <= _EQUILIBRIUM * size)
        self.by_state = self._matrix(Pullback(value, [self._z]))
        """:math:`\\partial F / \\partial h`, ``(d, d)``."""
        self.by_wanted = self._matrix(Pullback(value, self._wanted))
        """:math:`\\partial F / \\partial \\theta`, ``(p, d)``."""

    @cached_property
    def singular_range(self) -> tuple[float, float]:
        r"""The smallest and largest singular value of :math:`\partial F / \partial \theta`."""
        return singular_range(self.by_wanted)

    def phantom(self, gradient: GradientEstimator) -> Matrix:
        """Return the matrix A of a phantom gradient, ``(p, d)``.

        Raises:
            TypeError: ``gradient`` is no phantom gradient.
        """
        if isinstance(gradient, NeumannPhantomGradient):
            return self.by_wanted @ self.series(gradient.steps, gradient.current_damping)
        if isinstance(gradient, UnrolledPhantomGradient):
            with torch.enable_grad():
                unrolled = gradient.attach(self._f, self._z)
            return self._matrix(Pullback(unrolled, self._wanted))
        raise TypeError(f"gradient must be a phantom gradient, got {type(gradient).__name__}")

    def inverse(self, gradient: GradientEstimator) -> Matrix | None:
        r"""Return D with :math:`A = (\partial F / \partial \theta) D`, ``(d, d)``.

        It is :math:`\lambda (I + B + \dots + B^{k-1})`. The steps of UPG have that factor only at
        an equilibrium, where they stay; ``None`` elsewhere (relative residual above 1e-8).
        """
        if isinstance(gradient, NeumannPhantomGradient) or (
            isinstance(gradient, UnrolledPhantomGradient) and self._settled
        ):
            return self.series(gradient.steps, gradient.current_damping)
        return None

    @property
    @abstractmethod
    def identity(self) -> Matrix:
        """The identity, ``(d, d)``."""

    @abstractmethod
    def series(self, steps: int, damping: float) -> Matrix:
        r"""Return :math:`\lambda (I + B + \dots + B^{k-1})`, ``(d, d)``."""

    @abstractmethod
    def solve(self, v: Vector) -> Vector:
        r"""Return :math:`(I - \partial F / \partial h)^{-1} v`, ``(d,)``."""

    @abstractmethod
    def _matrix(self, pullback: Pullback) -> Matrix:
        """Return the pullback as a matrix."""


class Dense(Factors):
    """The matrices written out, from one product a column; for small states."""

    @property
    def identity(self) -> Vector:
        """The identity, ``(d, d)``."""
        return np.eye(self._z.numel())

    def series(self, steps: int, damping: float) -> Vector:
        """Return the truncated Neumann series, by Horner's rule."""
        b = damping * self.by_state + (1 - damping) * self.identity
        return _horner(lambda d: b @ d, self.identity, steps, damping)

    def solve(self, v: Vector) -> Vector:
        """Return the product with the inverse, by elimination."""
        return np.linalg.solve(self.identity - self.by_state, v)

    def _matrix(self, pullback: Pullback) -> Vector:
        return np.stack([pullback(e) for e in np.eye(pullback.shape[1])], axis=1)


class MatrixFree(Factors):
    """The matrices by their products; for large ones, as nothing of their size is ever stored.

    Extreme singular values take a Krylov basis, which is up to a thousand states.

    Products are those of autograd: backwards for the matrix, twice backwards for its transpose.
    """

    @property
    def identity(self) -> LinearOperator:
        """The identity, ``(d, d)``."""
        return aslinearoperator(eye_array(self._z.numel(), format="csr"))

    def series(self, steps: int, damping: float) -> LinearOperator:
        """Return the truncated Neumann series, by Horner's rule on a vector."""

        def product(matrix: LinearOperator) -> Callable[[Vector], Vector]:
            def b(u: Vector) -> Vector:
                image: Vector = matrix @ u
                return damping * image + (1 - damping) * u

            return lambda v: _horner(b, v, steps, damping)

        m = self.by_state
        return LinearOperator(
            m.shape, matvec=product(m), rmatvec=product(m.T), dtype=np.dtype(np.float64)
        )

    def solve(self, v: Vector) -> Vector:
        """Return the product with the inverse, by GMRES.

        Raises:
            SpectrumError: it did not converge.
        """
        matrix = self.identity - self.by_state
        u, failed = gmres(matrix, v, rtol=_ACCURACY, restart=min(v.size, 100), maxiter=100)
        if failed:
            raise SpectrumError(f"GMRES did not solve the adjoint equation of size {v.size}")
        solution: Vector = u
        return solution

    def _matrix(self, pullback: Pullback) -> LinearOperator:
        return LinearOperator(
            pullback.shape,
            matvec=pullback,
            rmatvec=pullback.transposed,
            dtype=np.dtype(np.float64),
        )


def _horner(b: Callable[[Vector], Vector], v: Vector, steps: int, damping: float) -> Vector:
    u = v
    for _ in range(steps - 1):
        u = b(u) + v
    return damping * u


def _like(v: Vector, tensor: Tensor) -> Tensor:
    return torch.as_tensor(np.ascontiguousarray(v), dtype=tensor.dtype, device=tensor.device).view(
        tensor.shape
    )


def _joined(tensors: Sequence[Tensor]) -> Vector:
    joined: Vector = torch.cat([x.detach().flatten() for x in tensors]).double().cpu().numpy()
    return joined
