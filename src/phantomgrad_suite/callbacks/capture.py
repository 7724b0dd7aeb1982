"""The passes through the equilibrium layers of a training step, heard and played again."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList
from torch.utils.hooks import RemovableHandle

from phantomgrad.deq import DEQ
from phantomgrad.nn import shared_parametrizations
from phantomgrad.solvers import Map

Hear = Callable[[DEQ, tuple[Any, ...], Any], None]
"""Called with a layer, the inputs of a pass through it, and what it returned."""


def layers_of(module: nn.Module) -> list[DEQ]:
    """Return the equilibrium layers in ``module``."""
    return [child for child in module.modules() if isinstance(child, DEQ)]


class Listener:
    """Hands every pass through the equilibrium layers of a module to a function, while it is on.

    Args:
        hear: the function; it is called at the end of each pass.
    """

    def __init__(self, hear: Hear) -> None:
        self._hear = hear
        self._handles: list[RemovableHandle] = []

    def start(self, module: nn.Module) -> None:
        """Listen to the layers of ``module``, and to no other."""
        self.stop()
        self._handles = [m.register_forward_hook(self._hear) for m in layers_of(module)]

    def stop(self) -> None:
        """Leave no hook behind."""
        for handle in self._handles:
            handle.remove()
        self._handles = []


class Replay(NamedTuple):
    """A pass once more, outside the run.

    Attributes:
        f: the map of the pass, ``(B, *state)`` to the same shape.
        z: its equilibrium as the solver found it, ``(B, *state)``.
        v: the cotangent that the loss sent to it, ``(B, *state)``.
        parameters: the trainable ones of the cell, which ``f`` closes over.
    """

    f: Map
    z: Tensor
    v: Tensor
    parameters: list[nn.Parameter]


class Pass:
    """One pass of a training step through a layer; :meth:`replay` gives its map once more.

    Inputs and equilibrium are kept off the graph, the cotangent as the backward pass sends it.

    Args:
        layer: the layer.
        inputs: what it was given behind the state.
        output: what it returned; some of it must be on a graph.
    """

    def __init__(self, layer: DEQ, inputs: tuple[Any, ...], output: Any) -> None:
        z, solution = output
        self._layer = layer
        self._inputs = apply_to_collection(inputs, Tensor, Tensor.detach, allow_frozen=True)
        self._z = solution.z.detach().clone()
        self._single = isinstance(z, Tensor)
        parts = (z,) if self._single else tuple(z)
        self._cotangent = [torch.zeros_like(part) for part in parts]
        self.reached = False
        """Whether a backward pass has come by."""
        for i, part in enumerate(parts):
            if part.requires_grad:
                part.register_hook(partial(self._keep, i))

    @contextmanager
    def replay(self) -> Iterator[Replay]:
        """Yield map, equilibrium, cotangent and parameters, with the weights and masks of the pass.

        They are those of a copy of the layer, and what is drawn is drawn from a copy of the
        generators: nothing that is done inside reaches the run.
        """
        layer = copy.deepcopy(self._layer)
        for module in layer.modules():
            if isinstance(module, ParametrizationList):
                module.eval()  # a spectral norm would step on from the weights of the pass
        cotangent = self._cotangent[0] if self._single else self._cotangent
        devices = [self._z.device] if self._z.device.type == "cuda" else []
        with (
            torch.enable_grad(),
            torch.random.fork_rng(devices),
            shared_parametrizations(layer.cell),
        ):
            f, v, _ = layer.close_over(self._inputs, cotangent)
            parameters = [p for p in layer.cell.parameters() if p.requires_grad]
            yield Replay(f, self._z, v, parameters)

    def _keep(self, part: int, cotangent: Tensor) -> None:
        self._cotangent[part] = cotangent.detach().clone()
        self.reached = True
