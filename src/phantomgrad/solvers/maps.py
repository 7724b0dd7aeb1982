"""Maps of a batch of states: their evaluation, once or again, and the precision of it."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import Node

Map = Callable[[Tensor], Tensor]
"""A map of a batch of states, ``(B, *state)``, to a new tensor of the same shape.

It must not modify its argument, which the solver still needs.
"""


def flat(x: Tensor) -> Tensor:
    """Return a batch of states as ``(B, D)``; a state may be a scalar."""
    return x.flatten(1) if x.dim() > 1 else x.unsqueeze(1)


def layout(z0: Tensor) -> tuple[Map, Map]:
    """Return how states like ``z0`` become ``(B, D)``, and how they come back.

    Images that are channels last in memory keep that order, which saves two transpositions at
    every evaluation.
    """
    last = z0.dim() == 4 and z0.is_contiguous(memory_format=torch.channels_last)
    shape = z0.shape[1:]
    if not last or z0.is_contiguous():
        return flat, lambda z: z.view(z.shape[0], *shape)
    c, h, w = shape
    return (
        lambda z: flat(z.permute(0, 2, 3, 1)),
        lambda z: z.view(z.shape[0], h, w, c).permute(0, 3, 1, 2),
    )


def evaluate(f: Map, z: Tensor) -> Tensor:
    """Return ``f(z)``; raise unless it is a tensor like ``z``, which ``f`` has not modified."""
    versioned = not torch.compiler.is_compiling() and not z.is_inference()
    version = z._version if versioned else None
    fz = f(z)
    if not isinstance(fz, Tensor):
        raise TypeError(
            f"f must return one tensor, got {type(fz).__name__}: f is a map of the state, such as "
            "lambda z: layer.cell(z, x), and returns the next state alone"
        )
    if fz.shape != z.shape:
        raise ValueError(
            f"f must keep the shape of the state: it maps {tuple(z.shape)} to {tuple(fz.shape)}"
        )
    if fz.device != z.device:
        raise ValueError(f"f must keep the device: z is on {z.device}, f(z) on {fz.device}")
    if versioned and z._version != version:
        raise ValueError("f must not modify its argument in place: write z = z + x, not z += x")
    return fz


def working_dtype(z: Tensor) -> torch.dtype:
    """Return the dtype in which a map of ``z`` computes, that of autocast if it is enabled."""
    device = z.device.type
    if torch.is_autocast_enabled(device) and z.dtype != torch.float64:
        return torch.get_autocast_dtype(device)
    return z.dtype


Held = tuple[list[Tensor], Callable[[Sequence[Tensor]], Map]]
"""The tensors that a map holds, and what makes a map of as many others: ``f.repeatable()``."""


class Repeated:
    """Evaluations of ``f`` at states like ``z0``, also in the backward pass.

    Every tensor through which a gradient can leave the map is one of ``tensors``, which a custom
    autograd function takes as arguments, or is refused by an error:

    - Tensors on a graph of their own are found through the map's ``repeatable``
      (:class:`phantomgrad.nn.Closure`: the inputs of the layer and the weights shared in its pass).
      In the evaluations, detached copies replace them: no gradient runs on into their graphs.
    - Leaves (parameters, and other tensors a map refers to) are found on the graphs of the first
      two evaluations.
    - What these two graphs share has been computed elsewhere, and is refused.
    - The graph of each evaluation in the backward pass is searched again: a leaf that is not known
      is refused.

    Evaluations are repeated with the weights, masks and autocast of the forward pass.
    """

    def __init__(self, f: Map, z0: Tensor) -> None:
        self.tensors: list[Tensor] = []
        """What the map depends on, complete after two evaluations by :meth:`search`."""
        self._leaves: list[Tensor] = []  # the same as the evaluations see them
        self._f = f
        repeatable: Callable[[], Held] | None = getattr(f, "repeatable", None)
        if repeatable is not None:
            self.tensors, with_tensors = repeatable()
            self._leaves = [t.detach().requires_grad_() for t in self.tensors]
            self._f = with_tensors(tuple(self._leaves))
        self._nodes: set[Node] | None = None  # of the first evaluation, until the second
        device = z0.device.type
        self._autocast: dict[str, Any] = {
            "device_type": device,
            "dtype": torch.get_autocast_dtype(device),
            "enabled": torch.is_autocast_enabled(device),
            "cache_enabled": False,  # a cached copy would be on the graph of one evaluation
        }

    def search(self, z: Tensor) -> Tensor:
        """Return ``f(z)``, and look for tensors that are not known yet."""
        z, fz = self._evaluate(z)
        known = {id(t) for t in (z, *self._leaves)}
        for leaf in self._leaves_of(fz):
            if id(leaf) not in known:
                self.tensors.append(leaf)
                self._leaves.append(leaf)
        return fz.detach()

    def value(self, z: Tensor) -> Tensor:
        """Return ``f(z)``, computed as by the other methods: to the same bits."""
        return self._evaluate(z)[1].detach()

    def pull_back(self, z: Tensor, u: Tensor) -> tuple[Tensor, Tensor, Sequence[Tensor | None]]:
        r"""Return ``f(z)``, :math:`J^\top u`, and the same for each of ``tensors``."""
        z, fz = self._evaluate(z)
        known = {id(t) for t in (z, *self._leaves)}
        if not all(id(leaf) in known for leaf in self._leaves_of(fz)):
            raise RuntimeError(
                "f uses a tensor in the backward pass that it did not use in its first "
                "evaluations: it must be the same function whenever it is called"
            )
        if not fz.requires_grad:
            return fz, torch.zeros_like(z), [None] * len(self._leaves)
        product, *gradients = torch.autograd.grad(
            fz, [z, *self._leaves], u.to(fz.dtype), allow_unused=True
        )
        return fz.detach(), torch.zeros_like(z) if product is None else product, gradients

    def _evaluate(self, z: Tensor) -> tuple[Tensor, Tensor]:
        # Always recorded: a map may compute in another order, or compiled, without a graph.
        z = z.detach().requires_grad_()
        with torch.enable_grad(), torch.autocast(**self._autocast):
            return z, evaluate(self._f, z)

    def _leaves_of(self, fz: Tensor) -> list[Tensor]:
        if fz.grad_fn is None:
            return [fz] if fz.requires_grad else []
        nodes, inner, leaves = [fz.grad_fn], set[Node](), dict[Node, Tensor]()
        while nodes:
            node = nodes.pop()
            if node in inner:
                continue
            if type(node).__name__ == "AccumulateGrad":
                leaves[node] = node.variable  # type: ignore[attr-defined]
                continue
            if self._nodes and node in self._nodes:
                raise ValueError(
                    f"f uses a tensor that was computed outside of it, by {node.name()}, and its "
                    "evaluations are repeated in the backward pass: pass the tensor to the layer "
                    "as an input of its cell"
                )
            inner.add(node)
            nodes += [parent for parent, _ in node.next_functions if parent is not None]
        self._nodes = inner if self._nodes is None else set()
        return list(leaves.values())
