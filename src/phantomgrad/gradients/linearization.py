"""A map at one point: its value and the products with its Jacobian, from one graph."""

from __future__ import annotations

import torch
from torch import Tensor

from phantomgrad.solvers import Map


class Linearization:
    r"""``f`` at ``z``, and :math:`J = \partial f / \partial z` there as two linear maps.

    ``f`` is evaluated once, at construction. ``value`` is on the graph of what ``f`` closes over;
    arguments and results of the products have the shape of ``z``, ``(B, *state)``.

    Raises:
        RuntimeError: in inference mode, which records no graph whatever is asked for.
    """

    def __init__(self, f: Map, z: Tensor) -> None:
        check_recordable()
        self._z = z.detach().requires_grad_()
        with torch.enable_grad():
            self.value = f(self._z)
        self._transposed: tuple[Tensor, Tensor] | None = None

    @property
    def is_constant(self) -> bool:
        """Whether ``f`` surely closes over nothing that wants a gradient.

        What a custom function closes over cannot be seen: it counts as something.
        """
        if self.value.is_leaf:
            return not self.value.requires_grad or self.value is self._z
        nodes, seen = [self.value.grad_fn], set()
        while nodes:
            node = nodes.pop()
            if node is None or node in seen:
                continue
            leaf, custom = getattr(node, "variable", self._z), hasattr(node, "saved_tensors")
            if leaf is not self._z or custom:
                return False  # nearly always the first one
            seen.add(node)
            nodes += [behind for behind, _ in node.next_functions]
        return True

    def vjp(self, u: Tensor) -> Tensor:
        """Return :math:`J^T u`."""
        return pullback(self.value, self._z, u.to(self.value.dtype))

    def vjps(self, u: Tensor, *wanted: Tensor) -> tuple[Tensor, ...]:
        r"""Return :math:`J^T u`, and the like for each of ``wanted``, which ``f`` depends on."""
        return torch.autograd.grad(self.value, (self._z, *wanted), u, retain_graph=True)

    def jvp(self, u: Tensor) -> Tensor:
        r"""Return :math:`J u`, the derivative of :math:`J^\top w`, which is linear in w."""
        if self._transposed is None:
            w = torch.zeros_like(self.value, requires_grad=True)
            with torch.enable_grad():
                self._transposed = w, pullback(self.value, self._z, w, create_graph=True)
        w, product = self._transposed
        return pullback(product, w, u)


def pullback(output: Tensor, point: Tensor, u: Tensor, create_graph: bool = False) -> Tensor:
    """Return ``J^T u`` of ``output`` by ``point``; zero where it depends on nothing."""
    if not output.requires_grad:
        return torch.zeros_like(point)
    (product,) = torch.autograd.grad(
        output,
        point,
        u,
        retain_graph=True,
        create_graph=create_graph,
        allow_unused=True,
        materialize_grads=True,
    )
    return product


def check_recordable() -> None:
    """Raise in inference mode, where no graph is recorded whatever is asked for."""
    if torch.is_inference_mode_enabled():
        raise RuntimeError(
            "the Jacobian of a map cannot be taken under torch.inference_mode(): use "
            "torch.no_grad() in its place (inference_mode=False of a Lightning Trainer)"
        )
