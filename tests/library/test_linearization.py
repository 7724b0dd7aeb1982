"""A map at a point: value and Jacobian products from one graph."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from problems import Affine, Counted, Map, TanhCell, dense_jacobian
from torch import Tensor

from phantomgrad.jacobian import Linearization


def tanh_map() -> tuple[Map, Tensor]:
    """A map that mixes all entries of a state of shape (2, 2)."""
    cell, x = TanhCell(), torch.randn(3, 4)
    return lambda z: cell(z.flatten(1), x).unflatten(1, (2, 2)), torch.randn(3, 2, 2)


def test_products_are_those_of_the_dense_jacobian() -> None:
    """``vjp`` is ``J^T u`` and ``jvp`` is ``J u``, any number of times."""
    f, z = tanh_map()
    at, jacobian = Linearization(f, z), dense_jacobian(f, z)
    for u in torch.randn(3, 3, 2, 2):
        flat = u.flatten(1).unsqueeze(2)
        torch.testing.assert_close(at.vjp(u).flatten(1), (jacobian.mT @ flat).squeeze(2))
        torch.testing.assert_close(at.jvp(u).flatten(1), (jacobian @ flat).squeeze(2))


@given(shape=st.lists(st.integers(1, 4), min_size=1, max_size=5))
def test_vjp_and_jvp_are_adjoint(shape: list[int]) -> None:
    """``<u, J w> = <J^T u, w>`` for states of every shape."""
    z, u, w = torch.randn(3, *shape)
    at = Linearization(lambda z: torch.sin(z) * z.flatten(-1).mean(), z)
    torch.testing.assert_close((u * at.jvp(w)).sum(), (at.vjp(u) * w).sum())


def test_f_is_evaluated_once() -> None:
    f, z = tanh_map()
    counted = Counted(f)
    at = Linearization(counted, z)
    for _ in range(4):
        at.jvp(at.vjp(z))
    assert counted.calls == 1


def test_the_value_is_on_the_graph_of_the_parameters() -> None:
    """Also where it was taken without a graph, and ``z`` itself stays off it."""
    weight, z = torch.ones(3, requires_grad=True), torch.randn(2, 3)
    with torch.no_grad():
        at = Linearization(lambda z: weight * z, z)
    torch.testing.assert_close(torch.autograd.grad(at.value.sum(), weight)[0], z.sum(dim=0))
    assert not z.requires_grad


@pytest.mark.parametrize("needs_grad", [False, True])
def test_a_map_that_ignores_its_argument_has_a_zero_jacobian(needs_grad: bool) -> None:
    b, z = torch.ones(2, 3, requires_grad=needs_grad), torch.randn(2, 3)
    at = Linearization(lambda z: 2 * b, z)
    assert torch.equal(at.vjp(z), torch.zeros(2, 3))
    assert torch.equal(at.jvp(z), torch.zeros(2, 3))


def test_a_half_precision_value_gives_products_in_the_dtype_of_the_state() -> None:
    z = torch.randn(2, 3)
    at = Linearization(lambda z: (2 * z).bfloat16(), z)
    assert at.value.dtype == torch.bfloat16
    assert at.vjp(z).dtype == torch.float64
    torch.testing.assert_close(at.vjp(torch.ones(2, 3)), torch.full((2, 3), 2.0))


def test_vjps_are_those_of_the_state_and_of_what_f_depends_on() -> None:
    f = Affine.random(batch=2, size=3)
    z, v = torch.randn(2, 2, 3)
    at = Linearization(f, z)
    for u in (v, 2 * v):
        into_z, into_bias, into_weight = at.vjps(u, f.bias, f.weight)
        torch.testing.assert_close(into_z, (f.weight.mT @ u.unsqueeze(2)).squeeze(2))
        torch.testing.assert_close(into_bias, u)
        torch.testing.assert_close(into_weight, u.unsqueeze(2) * z.unsqueeze(1))
    assert len(at.vjps(v)) == 1
    torch.testing.assert_close(at.vjps(v)[0], at.vjp(v))
