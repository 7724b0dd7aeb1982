"""Maps of a batch of states: layout, precision, and evaluations in both passes."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import Node, get_gradient_edge

from phantomgrad.solvers.context import vmapped

Map = Callable[[Tensor], Tensor]
"""A map of a batch of states, ``(B, *state)``, to a new tensor of the same shape.

It must not modify its argument, which the solver still needs.
"""


def flat(x: Tensor) -> Tensor:
    """Return a batch of states as ``(B, D)``; a state may be a scalar."""
    return x.flatten(1) if x.dim() > 1 else x.unsqueeze(1)


def per_sample(values: Tensor, states: Tensor) -> Tensor:
    """Return ``values``, ``(B,)``, in a shape that broadcasts over ``states``, ``(B, *state)``."""
    return values.view(-1, *[1] * (states.dim() - 1))


def layout(z0: Tensor) -> tuple[Map, Map]:
    """Return how states like ``z0`` become ``(B, D)``, and how they come back.

    Images that are channels last in memory stay so, which saves two transpositions at every
    evaluation. (Not in a vmap, where torch does not know the memory format.)
    """
    images = z0.dim() == 4 and not vmapped()
    last = images and z0.is_contiguous(memory_format=torch.channels_last)
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
            "lambda z: layer.cell(z, x), and returns only the next state"
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


def damped(f: Map, z: Tensor, fz: Tensor, damping: float) -> Tensor:
    r"""Return :math:`\lambda f(z) + (1 - \lambda) z`; integers in the state move on undamped.

    A map of a packed state says in ``integers`` where they are.
    """
    if damping == 1.0:
        return fz
    integers: Tensor | None = getattr(f, "integers", None)
    step = torch.lerp(z, fz, damping)
    return step if integers is None else torch.where(integers, fz, step)


def working_dtype(z: Tensor) -> torch.dtype:
    """Return the dtype in which a map of ``z`` computes, that of autocast if it is enabled."""
    device = z.device.type
    if torch.is_autocast_enabled(device) and z.dtype != torch.float64:
        return torch.get_autocast_dtype(device)
    return z.dtype


def widest_dtype(device: torch.device) -> torch.dtype:
    """Return float64, or float32 on MPS, which has no float64."""
    return torch.float32 if device.type == "mps" else torch.float64


def autocast_settings(device_type: str) -> dict[str, Any]:
    """Return the present arguments of ``torch.autocast``, for evaluations in a backward pass."""
    return {
        "device_type": device_type,
        "dtype": torch.get_autocast_dtype(device_type),
        "enabled": torch.is_autocast_enabled(device_type),
        "cache_enabled": False,  # a cached copy would be on the graph of one evaluation
    }


_NUMBERS = itertools.count()


def local_leaf(z: Tensor) -> Tensor:
    """Return a detached copy of ``z`` that requires a gradient, the leaf of a local graph.

    The copy is numbered. An enclosing :class:`Repeated` map has a smaller number, by which it
    knows that the leaf was made inside of it and is none of the tensors that it depends on.
    """
    leaf = z.detach().requires_grad_()
    leaf.number = next(_NUMBERS)  # type: ignore[attr-defined]
    return leaf


_PAUSED = ContextVar("paused", default=False)


class _PausableHook:
    """A hook of a tensor that is not called in :func:`_paused_hooks` of the same backward pass."""

    def __init__(self, hook: Callable[[Tensor], Tensor | None]) -> None:
        self._hook = hook

    def __call__(self, gradient: Tensor) -> Tensor | None:
        paused = _PAUSED.get()
        if not paused and torch._C._is_key_in_tls("context"):  # of the caller, in a device's thread
            caller = torch._C._get_obj_in_tls("context")  # None in torch 2.12, after a nested pass
            paused = caller is not None and caller.get(_PAUSED, False)
        return None if paused else self._hook(gradient)


@contextmanager
def _paused_hooks(tensors: Iterable[Tensor]) -> Iterator[None]:
    """Pause the hooks of ``tensors``, which are for the sum of their gradients, not its parts.

    They stay where they are: other threads may be in a backward pass that calls them.
    """
    for hooks in (t._backward_hooks for t in tensors if t._backward_hooks):  # no public access
        for key, hook in [*hooks.items()]:
            if not isinstance(hook, _PausableHook):
                hooks[key] = _PausableHook(hook)
    token = _PAUSED.set(True)
    try:
        yield
    finally:
        _PAUSED.reset(token)


Detached = tuple[list[Tensor], list[Tensor], Map]
"""Tensors on a graph, copies of them off the graph, and a map that uses the copies."""


class Repeated:
    """``f`` as a map of flat states ``(B, D)`` in ``dtype``, evaluated in both passes of autograd.

    The backward pass uses the weights, masks and autocast of the forward pass. A custom autograd
    function gives gradients only to its arguments; ``tensors`` are those that ``f`` depends on:

    - Tensors on a graph of their own, known to the map (``detached`` of a
      :class:`phantomgrad.nn.Closure`: inputs of the layer, shared weights). The evaluations use
      leaf copies, so that no gradient runs on into that graph at each of them.
    - Leaves (parameters, and others that ``f`` refers to), found on the graphs of the first two
      evaluations. What these two share was computed outside of ``f``, which is an error. So is a
      leaf that only the backward pass finds.
    """

    def __init__(self, f: Map, z0: Tensor, dtype: torch.dtype) -> None:
        detached: Callable[[], Detached] = getattr(f, "detached", lambda: ([], [], f))
        self.tensors, self._leaves, self._f = detached()  # leaves stand for tensors in evaluations
        self._flatten, self._restore = layout(z0)
        self._dtype, self._wide = z0.dtype, dtype
        self._first: set[Node] | None = None  # graph of the first evaluation, until the second
        self._autocast = autocast_settings(z0.device.type)
        self._number = next(_NUMBERS)  # local leaves with a higher one are made inside of f

    def flatten(self, z: Tensor) -> Tensor:
        """Return states of ``f`` as ``(B, D)``."""
        return self._flatten(z).to(self._wide)

    def restore(self, z: Tensor) -> Tensor:
        """Return flat states as those of ``f``."""
        return self._restore(z).to(self._dtype)

    def search(self, z: Tensor) -> Tensor:
        """Return ``f(z)`` and complete ``tensors``, in the first two evaluations."""
        z, fz = self._evaluate(z)
        unknown = self._unknown(z, fz)
        self.tensors += unknown
        self._leaves += unknown
        return fz.detach()

    def value(self, z: Tensor) -> Tensor:
        """Return ``f(z)``, to the same bits as the other methods."""
        return self._evaluate(z)[1].detach()

    def pull_back(self, z: Tensor, u: Tensor, sums: dict[int, Tensor]) -> tuple[Tensor, Tensor]:
        r"""Return ``f(z)`` and :math:`J^\top u`; add the gradients of ``tensors`` to ``sums``."""
        leaf, fz = self._evaluate(z)
        if self._unknown(leaf, fz):
            raise RuntimeError(
                "f uses a tensor in the backward pass that it did not use in its first "
                "evaluations: it must be the same function whenever it is called"
            )
        if not fz.requires_grad:
            return fz, torch.zeros_like(z)
        wanted = [leaf, *self._leaves]
        with _paused_hooks(self._leaves):
            product, *gradients = torch.autograd.grad(fz, wanted, u, allow_unused=True)
        for i, gradient in enumerate(gradients):
            if gradient is not None:  # in half precision, summed in float32
                gradient = gradient.to(torch.promote_types(gradient.dtype, torch.float32))
                sums[i] = sums[i] + gradient if i in sums else gradient
        return fz.detach(), torch.zeros_like(z) if product is None else self.flatten(product)

    def _evaluate(self, z: Tensor) -> tuple[Tensor, Tensor]:
        # Always recorded: without a graph a map may round differently (fused, or compiled).
        z = self.restore(z).detach().requires_grad_()  # a leaf: compilers warn about others
        with torch.enable_grad(), torch.autocast(**self._autocast):
            return z, self.flatten(evaluate(self._f, z))

    def _unknown(self, z: Tensor, fz: Tensor) -> list[Tensor]:
        """Return the leaves on the graph of ``fz`` that are not in ``tensors``."""
        known = {id(t) for t in (z, *self._leaves)}
        unknown, seen = list[Tensor](), set[Node]()
        nodes = [get_gradient_edge(fz).node] if fz.requires_grad else []
        while nodes:
            node = nodes.pop()
            if node in seen:
                continue
            seen.add(node)
            if type(node).__name__ == "AccumulateGrad":
                leaf = node.variable  # type: ignore[attr-defined]
                local = id(leaf) in known or getattr(leaf, "number", -1) > self._number
                unknown += [] if local else [leaf]
            elif self._first and node in self._first:
                raise ValueError(
                    f"f uses a tensor that was computed outside of it, by {node.name()}, and its "
                    "evaluations are repeated in the backward pass: pass the tensor to the layer "
                    "as an input of its cell"
                )
            nodes += [parent for parent, _ in node.next_functions if parent is not None]
        self._first = seen if self._first is None else set()
        return unknown
