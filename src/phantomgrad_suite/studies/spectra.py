"""Norms and extreme singular values, of a matrix or of an operator known by its products alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.linalg import eigh_tridiagonal
from scipy.sparse.linalg import LinearOperator

Matrix = Any
"""A float64 array, or a ``LinearOperator`` of scipy with its transpose; both know @, + and -."""

_MOST_VECTORS = 1000  # that Lanczos keeps
_ACCURACY = 1e-13  # of an eigenvector: its residual over the norm of the matrix


class SpectrumError(RuntimeError):
    """Lanczos did not find the eigenvalue."""


def norm(matrix: Matrix) -> float:
    r"""Return the spectral norm of ``matrix``, ``(p, d)``."""
    if isinstance(matrix, np.ndarray):
        return float(np.linalg.norm(matrix, 2))
    return math.sqrt(max(_extreme(matrix.T @ matrix, -1), 0.0))


def singular_range(matrix: Matrix) -> tuple[float, float]:
    r"""Return the smallest and the largest singular value of ``matrix``, ``(p, d)``, by columns.

    The smallest is :math:`\min_{|v| = 1} |M v|`: zero where p < d. It counts as zero below
    :math:`\sqrt{d \epsilon}\, \sigma_{\max}` too, :math:`\epsilon` the rounding of float64, as its
    square then drowns in the rounding of that of the largest.

    Raises:
        SpectrumError: Lanczos did not converge.
    """
    rows, columns = matrix.shape
    if isinstance(matrix, np.ndarray):
        values = np.linalg.svd(matrix, compute_uv=False)
        smallest, largest = float(values.min()), float(values.max())
    else:
        largest = norm(matrix)
        square = _extreme(matrix.T @ matrix, 0) if rows >= columns else 0.0
        smallest = math.sqrt(max(square, 0.0))
    threshold = math.sqrt(columns * np.finfo(np.float64).eps) * largest
    return (smallest if rows >= columns and smallest > threshold else 0.0), largest


def smallest_eigenvalue(symmetric: Matrix) -> float:
    """Return the smallest eigenvalue of a symmetric matrix, ``(d, d)``.

    Raises:
        SpectrumError: Lanczos did not converge.
    """
    if isinstance(symmetric, np.ndarray):
        return float(np.linalg.eigvalsh(symmetric)[0])
    return _extreme(symmetric, 0)


def _extreme(symmetric: LinearOperator, place: int) -> float:
    """Return the smallest (place 0) or the largest (-1) eigenvalue, by Lanczos.

    All vectors are kept and stay orthogonal. ARPACK, which restarts, was seen to return the second
    smallest eigenvalue of an IGNN layer, whose few eigenvalues have a high multiplicity.
    """
    size = symmetric.shape[0]
    basis = np.empty((min(size, _MOST_VECTORS), size))
    w = np.random.default_rng(0).standard_normal(size)
    diagonal, beside, scale = [], [float(np.linalg.norm(w))], 0.0
    for i in range(len(basis)):
        basis[i] = w / beside[i]
        w = symmetric @ basis[i]
        diagonal.append(float(basis[i] @ w))
        scale = max(scale, float(np.linalg.norm(w)))
        for _ in range(2):  # once leaves what cancellation has spoilt
            w -= (basis[: i + 1] @ w) @ basis[: i + 1]
        beside.append(float(np.linalg.norm(w)))
        value, last = _ritz(diagonal, beside[1:-1], place % (i + 1))
        if i + 1 == size or beside[-1] * last <= _ACCURACY * scale:
            return value
    raise SpectrumError(
        f"Lanczos did not find the {'smallest' if place == 0 else 'largest'} eigenvalue of a "
        f"matrix of size {size} with {len(basis)} vectors: use the dense form, or a smaller problem"
    )


def _ritz(diagonal: list[float], beside: list[float], place: int) -> tuple[float, float]:
    """Return an eigenvalue of a tridiagonal matrix, and its vector's last entry in modulus."""
    values, vectors = eigh_tridiagonal(
        diagonal, beside, select="i", select_range=(place, place), lapack_driver="stemr"
    )
    return float(values[0]), abs(float(vectors[-1, 0]))
