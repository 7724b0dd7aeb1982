"""A small problem with known adjoints, and its numbers, from code of its own in float64.

``adjoint.json`` holds, for each sample, the dense inverse of Broyden's method after k steps
from zero, and the iterates of GMRES at the equilibrium.
"""

from typing import Any

import torch
from problems import GoldenCell, golden_file
from torch import Tensor

NUMBERS: dict[str, Any] = golden_file("adjoint")
V = torch.sin((3 + torch.arange(2)[:, None] + 2 * torch.arange(5)).double())
ZERO = torch.zeros_like(V)


def f(z: Tensor) -> Tensor:
    cell = GoldenCell().requires_grad_(False)
    return cell(z, cell.inputs)


def adjoints(name: str) -> Tensor:
    """The adjoint of both samples by one of the methods."""
    return torch.tensor([sample[name] for sample in NUMBERS["adjoints"]], dtype=torch.float64)
