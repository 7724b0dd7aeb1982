"""A small problem with known adjoints, and its numbers, from code of its own in float64.

``adjoint.json`` holds, for each sample, the dense inverse of Broyden's method after k steps
from zero, and the iterates of GMRES at the equilibrium.
"""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

NUMBERS: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text())
_Q, _P, _I = torch.arange(2)[:, None], torch.arange(5), torch.arange(5)[:, None]
_F64 = torch.float64
W = 0.45 * torch.sin((1 + (_I + 1) * (2 * _P + 1) + _P**2).to(_F64))
U = 0.5 * torch.cos((2 + 5 * _I + 3 * _P).to(_F64))
BIAS = 0.1 * torch.sin((4 + _P).to(_F64))
X = torch.cos((1 + 2 * _Q + 5 * _P).to(_F64))
V = torch.sin((3 + _Q + 2 * _P).to(_F64))
ZERO = torch.zeros_like(X)


def f(z: Tensor) -> Tensor:
    return torch.tanh(z @ W.mT + X @ U.mT + BIAS)


def adjoints(name: str) -> Tensor:
    """The adjoint of both samples by one of the methods."""
    return torch.tensor([sample[name] for sample in NUMBERS["adjoints"]], dtype=_F64)
