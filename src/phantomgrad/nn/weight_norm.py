"""Weight norm for modules that can be copied and pickled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import weight_norm

from phantomgrad.nn.linear import affine

Reduced = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
"""The result of ``__reduce__``."""


def reduce_normed(module: nn.Module, *arguments: Any) -> Reduced:
    """Return the ``__reduce__`` of a module with torch's weight norm, which torch cannot pickle.

    Args:
        module: the module.
        arguments: of its constructor, without the last one, the device. A subclass with other
            arguments needs a ``__reduce__`` of its own.
    """
    make = parametrize.type_before_parametrizations(module)
    # On the meta device, since the state brings the parameters: no memory, no random numbers.
    state = module.__dict__.copy()
    del state["_load_state_dict_pre_hooks"]  # torch's; it cannot be pickled, and is set again
    return make, (*arguments, "meta"), state


class NormedLinear(nn.Linear):
    r"""A linear map whose rows are :math:`g \, v / \|v\|`, each with a gain g.

    v is drawn as in :class:`torch.nn.Linear` and g is its norm; the bias starts at zero.

    Args:
        in_features: of the input.
        out_features: of the output.
        bias: whether to add a bias.
        device: of the parameters.
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
        return reduce_normed(self, self.in_features, self.out_features, self.bias is not None)
