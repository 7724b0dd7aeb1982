"""A cell as a map of its state alone, which knows the tensors that it closes over."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_map

from phantomgrad.nn.packing import Packing
from phantomgrad.nn.parametrizations import SHARED
from phantomgrad.nn.recomputation import PassState
from phantomgrad.solvers import Map


@dataclass(frozen=True)
class Closure:
    """The map ``f(z) = call(z, *inputs, **keywords)`` of one tensor, ``z`` packed by ``packing``.

    ``module`` holds the shared weights and the dropout masks of the call.
    """

    module: nn.Module
    call: Callable[..., Any]
    inputs: Sequence[Any]
    keywords: Mapping[str, Any]
    packing: Packing | None

    def __call__(self, z: Tensor) -> Tensor:
        """Return the next state."""
        if self.packing is None:
            return self.call(z, *self.inputs, **self.keywords)  # type: ignore[no-any-return]
        return self.packing.pack(self.call(self.packing.unpack(z), *self.inputs, **self.keywords))

    def detached(self) -> tuple[list[Tensor], list[Tensor], Map]:
        """Return tensors that require a gradient, leaf copies of them, and the map of the copies.

        The tensors are inputs and the shared weights of the present pass; parameters of the module
        are not copied. The map can be called at any time, also in the backward pass and in another
        thread: it always uses the dropout masks of its first evaluation.
        """
        tensors, copies = list[Tensor](), list[Tensor]()

        def copied(value: Any) -> Any:
            if not isinstance(value, Tensor) or not value.requires_grad:
                return value
            tensors.append(value)
            copies.append(value.detach().requires_grad_())
            return copies[-1]

        inputs, keywords = tree_map(copied, (tuple(self.inputs), dict(self.keywords)))
        f = replace(self, inputs=inputs, keywords=keywords)
        state = PassState(self.module, tree_map(copied, SHARED.tensors))

        def repeated(z: Tensor) -> Tensor:
            with state:
                return f(z)

        return tensors, copies, repeated
