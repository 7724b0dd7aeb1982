"""Passes through equilibrium layers: heard while listening, and played again without a trace."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from problems import CoupledCell, TanhCell
from torch import Tensor, nn

from phantomgrad import DEQ, Broyden, ImplicitGradient
from phantomgrad.nn import VariationalDropout
from phantomgrad_suite.callbacks.capture import Listener, Pass, layers_of

TIGHT = Broyden(max_evaluations=60, tol=1e-13)


def layer_of(cell: nn.Module) -> DEQ:
    return DEQ(cell, TIGHT, ImplicitGradient(solver=TIGHT))


@pytest.fixture
def x() -> Tensor:
    return torch.randn(3, 4)


def test_listener_hears_what_it_was_started_for_until_it_stops(x: Tensor) -> None:
    heard: list[Any] = []
    listener = Listener(lambda layer, inputs, output: heard.append((layer, inputs, output)))
    first, second = (nn.Sequential(layer_of(TanhCell())) for _ in range(2))
    listener.start(first)
    listener.start(second)
    first[0](x)
    output = second[0](x)
    listener.stop()
    second[0](x)
    ((layer, inputs, given),) = heard
    assert layer is second[0]
    assert inputs[0] is x
    assert given is output
    assert not any(layer._forward_hooks for layer in [*layers_of(first), *layers_of(second)])


def test_replay_is_the_map_of_the_pass(x: Tensor) -> None:
    """Equilibrium, cotangent and mask, after the layer has gone on to others."""

    class Masked(TanhCell):
        def __init__(self) -> None:
            super().__init__()
            self.mask = VariationalDropout(0.5)

        def forward(self, z: Tensor, x: Tensor) -> Tensor:
            return super().forward(self.mask(z), x)

    layer = layer_of(Masked())
    output = layer(x)
    mask, heard = layer.cell.mask._mask.clone(), Pass(layer, (x,), output)
    assert not heard.reached
    (output[0] ** 2).sum().backward()
    assert heard.reached
    with heard.replay() as (f, z, v, parameters):
        torch.testing.assert_close(f(z), z, rtol=0, atol=1e-11)
        torch.testing.assert_close(v, 2 * z)
        torch.testing.assert_close(f(z), torch.tanh(layer.cell.linear(z * mask) + x))
        assert not any(a is b for a, b in zip(parameters, layer.parameters(), strict=True))
        with torch.no_grad():
            parameters[0].zero_()
    assert layer.cell.linear.weight.any()


def test_states_of_several_tensors_are_joined(x: Tensor) -> None:
    """The loss knows the second alone."""
    layer = layer_of(CoupledCell())
    output = layer(x, z0=(torch.zeros(3, 4), torch.zeros(3, 2, 3)))
    heard = Pass(layer, (x,), output)
    (3 * output[0][1]).sum().backward()
    with heard.replay() as (f, z, v, _):
        assert z.shape == v.shape == (3, 10)
        torch.testing.assert_close(f(z), z, rtol=0, atol=1e-11)
        assert torch.equal(v, torch.cat([torch.zeros(3, 4), 3 * torch.ones(3, 6)], dim=1))


def test_inputs_are_constants(x: Tensor) -> None:
    """Also those inside of others, and those that come from the weights of the cell itself."""

    class Nested(TanhCell):
        def forward(self, z: Tensor, given: Any) -> Tensor:
            return super().forward(z, given["x"][0])

    cell = Nested()
    inputs = ({"x": [x * cell.linear.weight.sum()]},)
    layer = layer_of(cell)
    output = layer(*inputs, z0=torch.zeros(3, 4))
    heard = Pass(layer, inputs, output)
    output[0].sum().backward()
    with heard.replay() as (f, z, _, parameters):
        torch.autograd.grad(f(z).sum(), parameters)
        (kept,) = heard._inputs[0]["x"]
        assert not kept.requires_grad


def test_replay_draws_from_copies_of_the_generators(x: Tensor) -> None:
    layer = layer_of(TanhCell())
    output = layer(x)
    heard, before = Pass(layer, (x,), output), torch.get_rng_state()
    with heard.replay():
        torch.rand(5)
    assert torch.equal(torch.get_rng_state(), before)
