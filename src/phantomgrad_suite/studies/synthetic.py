"""The map of the paper's synthetic setting, a layer with a given spectral norm."""

from collections.abc import Callable
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from phantomgrad.checks import check_at_least, check_choice

Nonlinearity = Literal["linear", "relu", "tanh"]
_ACTIVATIONS: dict[Nonlinearity, Callable[[Tensor], Tensor]] = {
    "linear": lambda x: x,
    "relu": torch.relu,
    "tanh": torch.tanh,
}


class SyntheticCell(nn.Module):
    r"""The map :math:`h \mapsto \sigma(W (h + u))` with a symmetric W of a given norm.

    (Geng et al., 2021, "Synthetic Setting"). As :math:`\sigma` is 1-Lipschitz, the map has the
    Lipschitz constant :math:`\|W\|_2 = L_h`. W is :math:`(A + A^\top) / 2` with Gaussian A, scaled
    by its largest eigenvalue in modulus, and not trained.

    Args:
        size: D, the width of h and u.
        lipschitz: :math:`L_h`, positive.
        nonlinearity: :math:`\sigma`: ``"tanh"``, ``"relu"`` or ``"linear"`` (the paper names none).
        generator: of A, on the CPU.
    """

    def __init__(
        self,
        size: int = 128,
        lipschitz: float = 0.9,
        nonlinearity: Nonlinearity = "tanh",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        check_at_least("size", size, 1)
        check_synthetic(lipschitz, nonlinearity)
        self.nonlinearity: Nonlinearity = nonlinearity
        weight = symmetric_matrix(size, lipschitz, generator).to(torch.get_default_dtype())
        self.weight = nn.Parameter(weight, requires_grad=False)

    def forward(self, h: Tensor, u: Tensor) -> Tensor:
        """Return the next state, ``(..., D)``, from ``h`` and the input ``u`` of that shape."""
        return _ACTIVATIONS[self.nonlinearity](F.linear(h + u, self.weight))


def check_synthetic(lipschitz: float, nonlinearity: str) -> None:
    """Raise unless these are arguments of a :class:`SyntheticCell`."""
    if not lipschitz > 0:
        raise ValueError(f"lipschitz must be positive, got {lipschitz}")
    check_choice("nonlinearity", nonlinearity, get_args(Nonlinearity))


def symmetric_matrix(size: int, norm: float, generator: torch.Generator | None = None) -> Tensor:
    """Return a Gaussian symmetric matrix ``(size, size)`` of spectral norm ``norm``, in float64.

    Its sign, which is arbitrary, is chosen such that the largest eigenvalue is ``norm``: with
    ``-norm`` instead, ``I - W`` would be well conditioned however close ``norm`` is to 1.
    """
    a = torch.randn(size, size, generator=generator, dtype=torch.float64)
    symmetric = (a + a.T) / 2
    eigenvalues = torch.linalg.eigvalsh(symmetric)  # in ascending order
    least, largest = eigenvalues[0], eigenvalues[-1]
    extreme: Tensor = largest if largest > -least else least
    return symmetric * (norm / extreme)
