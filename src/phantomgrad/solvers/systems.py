"""Small linear systems, one for each sample; exported graphs get no LAPACK operators."""

import torch
from torch import Tensor


def solve_unit_triangular(system: Tensor, right: Tensor) -> Tensor:
    """Return x with ``x_j + sum_{i<j} system_ji x_i = right_j``, ``(B, k)``.

    The rest of ``system`` must be zero.
    """
    if not torch.compiler.is_exporting():
        solution: Tensor = torch.linalg.solve_triangular(
            system, right.unsqueeze(2), upper=False, unitriangular=True
        )
        return solution.squeeze(2)
    for j in range(system.shape[1] - 1):
        right = right - system[:, :, j] * right[:, j : j + 1]
    return right


def solve_positive(system: Tensor, right: Tensor) -> Tensor:
    """Return the solution ``(B, k, 1)`` for a positive definite matrix, not finite if singular."""
    if not torch.compiler.is_exporting():
        # solve_ex reports a singular system without raising or a host sync.
        solution: Tensor = torch.linalg.solve_ex(system, right)[0]
        return solution
    size = system.shape[1]
    units = torch.eye(size, dtype=system.dtype, device=system.device).unsqueeze(2)
    rows = torch.cat([system, right], dim=2)
    for j in range(size):  # Gauss-Jordan elimination; such a matrix needs no pivoting
        pivot = rows[:, j : j + 1] / rows[:, j : j + 1, j : j + 1]
        rows = rows - (rows[:, :, j : j + 1] - units[j]) * pivot
    return rows[:, :, size:]
