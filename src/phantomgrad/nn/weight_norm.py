"""Weight norm for modules that are to be copied and pickled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import weight_norm

from phantomgrad.nn.linear import affine

Reduced = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
"""What ``__reduce__`` returns."""


def reduce_normed(module: nn.Module, *arguments: Any) -> Reduced:
    """Return how to pickle a module with torch's weight norm, whose own modules refuse it.

    Args:
        module: the module; its ``__reduce__`` returns what this does.
        arguments: of its class; the last one, the device, is added here. A subclass that takes
            others has a ``__reduce__`` of its own.
    """
    make = parametrize.type_before_parametrizations(module)
    # On the meta device, as the parameters arrive with the state: no memory, no random numbers.
    state = module.__dict__.copy()
    del state["_load_state_dict_pre_hooks"]  # torch's own is no pickle, and comes anew
    return make, (*arguments, "meta"), state


class NormedLinear(nn.Linear):
    r"""A linear map whose rows are :math:`g \, v / \|v\|`, each with a gain g.

    v is drawn as in :class:`torch.nn.Linear` and g is its norm; the bias starts at zero.

    Args:
        in_features: of the input.
        out_features: of the output.
        bias: whether there is one.
        device: where the parameters live.
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: Any = None
    ) -> None:
        super().__init__(in_features, out_features, bias, device)
        if bias:
            nn.init.zeros_(self.bias)
        weight_norm(self)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``(..., out_features)`` of ``(..., in_features)``."""
        return affine(x, self.weight, self.bias)

    def __reduce__(self) -> Reduced:
        arguments = (self.in_features, self.out_features, self.bias is not None)
        return reduce_normed(self, *arguments)
