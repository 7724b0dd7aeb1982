"""Passes through equilibrium layers: heard while listening, and evaluated again later."""

from __future__ import annotations

from typing import Any

import torch
from problems import CoupledCell, TanhCell
from torch import Tensor, nn

from phantomgrad import DEQ, Broyden, ImplicitGradient
from phantomgrad.nn import VariationalDropout
from phantomgrad_suite.callbacks.capture import Listener, Pass, layers_of

TIGHT = Broyden(max_evaluations=60, tol=1e-13)


def layer_of(cell: nn.Module) -> DEQ:
    return DEQ(cell, TIGHT, ImplicitGradient(solver=TIGHT))


def test_listener_hears_one_module_until_it_stops(x: Tensor) -> None:
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
    assert (layer, given) == (second[0], output)
    assert inputs[0] is x
    assert not any(layer._forward_hooks for layer in [*layers_of(first), *layers_of(second)])


def test_replay_has_equilibrium_cotangent_and_mask_of_the_pass(x: Tensor) -> None:
    """Its parameters and its random numbers are copies of those of the run."""

    class Masked(TanhCell):
        def __init__(self) -> None:
            super().__init__()
            self.mask = VariationalDropout(0.5)

        def forward(self, z: Tensor, x: Tensor) -> Tensor:
            return super().forward(self.mask(z), x)

    layer = layer_of(Masked())
    output = layer(x)
    mask, captured = layer.cell.mask._mask.clone(), Pass(layer, (x,), output)
    assert not captured.reached
    (output[0] ** 2).sum().backward()
    assert captured.reached
    generator = torch.get_rng_state()
    with captured.replay() as (f, z, v, parameters):
        torch.testing.assert_close(f(z), z, rtol=0, atol=1e-11)
        torch.testing.assert_close(v, 2 * z)
        torch.testing.assert_close(f(z), torch.tanh(layer.cell.linear(z * mask) + x))
        assert not any(a is b for a, b in zip(parameters, layer.parameters(), strict=True))
        with torch.no_grad():
            parameters[0].zero_()
        torch.rand(5)
    assert layer.cell.linear.weight.any()
    assert torch.equal(torch.get_rng_state(), generator)


def test_states_of_several_tensors_are_joined(x: Tensor) -> None:
    """The loss depends on the second one alone."""
    layer = layer_of(CoupledCell())
    output = layer(x, z0=(torch.zeros(3, 4), torch.zeros(3, 2, 3)))
    captured = Pass(layer, (x,), output)
    (3 * output[0][1]).sum().backward()
    with captured.replay() as (f, z, v, _):
        assert z.shape == v.shape == (3, 10)
        torch.testing.assert_close(f(z), z, rtol=0, atol=1e-11)
        assert torch.equal(v, torch.cat([torch.zeros(3, 4), 3 * torch.ones(3, 6)], dim=1))


def test_inputs_are_constants(x: Tensor) -> None:
    """Also in nested structures, and if they are computed from the weights of the cell."""

    class Nested(TanhCell):
        def forward(self, z: Tensor, given: Any) -> Tensor:
            return super().forward(z, given["x"][0])

    cell = Nested()
    inputs = ({"x": [x * cell.linear.weight.sum()]},)
    layer = layer_of(cell)
    output = layer(*inputs, z0=torch.zeros(3, 4))
    captured = Pass(layer, inputs, output)
    output[0].sum().backward()
    with captured.replay() as (f, z, _, parameters):
        torch.autograd.grad(f(z).sum(), parameters)
        assert not captured._inputs[0]["x"][0].requires_grad
