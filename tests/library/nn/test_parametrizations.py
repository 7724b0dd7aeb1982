"""Parametrized weights, computed once."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

from phantomgrad.nn import shared_parametrizations


class Doubled(nn.Module):
    """A parametrization that counts how often it is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, weight: Tensor) -> Tensor:
        self.calls += 1
        return 2 * weight


def doubled_linear() -> tuple[nn.Linear, Doubled]:
    """A linear layer whose weight is computed by ``Doubled``."""
    layer, doubled = nn.Linear(3, 3), Doubled()
    parametrize.register_parametrization(layer, "weight", doubled)
    doubled.calls = 0
    return layer, doubled


def test_each_weight_is_computed_once() -> None:
    layer, doubled = doubled_linear()
    model = nn.Sequential(layer, nn.Tanh())
    for forward in (1, 2):
        with shared_parametrizations(model):
            for _ in range(5):
                model(torch.randn(2, 3))
        assert doubled.calls == forward
    model(torch.randn(2, 3))
    assert doubled.calls == 3


def test_a_first_use_without_graph_does_not_lose_the_graph() -> None:
    """The solve runs under ``no_grad``; the shared weight is on the graph all the same."""
    layer, _ = doubled_linear()
    with shared_parametrizations(layer):
        with torch.no_grad():
            layer(torch.ones(1, 3))
        layer(torch.ones(1, 3)).sum().backward()
    original = layer.parametrizations["weight"].original  # type: ignore[union-attr, index]
    torch.testing.assert_close(original.grad, torch.full((3, 3), 2.0))


def test_without_a_graph_there_is_none() -> None:
    layer, _ = doubled_linear()
    with torch.no_grad(), shared_parametrizations(layer):
        assert not layer.weight.requires_grad


def test_a_spectral_norm_stands_still_inside() -> None:
    layer = parametrizations.spectral_norm(nn.Linear(4, 4))
    vector = layer.parametrizations["weight"][0]._u  # type: ignore[union-attr, index]
    with shared_parametrizations(layer):
        inside = vector.clone()
        weights = [layer.weight for _ in range(3)]
        assert torch.equal(vector, inside)
    assert all(torch.equal(weight, weights[0]) for weight in weights)


def test_a_module_without_parametrizations_is_left_alone() -> None:
    layer = nn.Linear(2, 2)
    with shared_parametrizations(layer):
        assert layer(torch.ones(1, 2)).shape == (1, 2)
