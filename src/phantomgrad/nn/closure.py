"""A cell as a map of its state alone, which knows the tensors that it closes over."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from phantomgrad.nn.packing import Packing
from phantomgrad.nn.parametrizations import PASS
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

    def repeatable(self) -> tuple[list[Tensor], Callable[[Sequence[Tensor]], Map]]:
        """Return the tensors on the graph that it is given, and what evaluates it with others.

        These are the tensors in the inputs that require a gradient and the shared weights of the
        present pass, but no parameters of the module. The function takes as many others and
        returns a map that uses them instead, with the dropout masks of its first evaluation. It can
        be called at any time, also in the backward pass and in another thread.
        """
        leaves, structure = tree_flatten((tuple(self.inputs), dict(self.keywords)))
        places = [i for i, t in enumerate(leaves) if isinstance(t, Tensor) and t.requires_grad]
        shared = PASS.tensors
        weights = {key: weight for key, weight in shared.items() if weight.requires_grad}

        def with_tensors(tensors: Sequence[Tensor]) -> Map:
            given = leaves.copy()
            for place, tensor in zip(places, tensors, strict=False):
                given[place] = tensor
            inputs, keywords = tree_unflatten(given, structure)
            f = replace(self, inputs=inputs, keywords=keywords)
            others = dict(zip(weights, tensors[len(places) :], strict=True))
            state = PassState(self.module, shared | others)

            def repeated(z: Tensor) -> Tensor:
                with state:
                    return f(z)

            return repeated

        return [*(leaves[i] for i in places), *weights.values()], with_tensors
