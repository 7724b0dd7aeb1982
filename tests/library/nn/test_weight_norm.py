"""Linear maps with weight norm, and parametrized weights shared by a pass."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from phantomgrad.nn import NormedLinear, shared_parametrizations


@pytest.mark.parametrize("bias", [False, True])
def test_rows_are_directions_times_gains(bias: bool) -> None:
    layer = NormedLinear(3, 5, bias)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_()
    gain, direction = (
        layer.parametrizations.weight.original0,
        layer.parametrizations.weight.original1,
    )
    weight = gain * direction / direction.norm(dim=1, keepdim=True)
    x = torch.randn(2, 4, 3)
    torch.testing.assert_close(layer(x), x @ weight.T + (layer.bias if bias else 0))


@pytest.mark.parametrize(
    "twin_of", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"]
)
@pytest.mark.parametrize("bias", [False, True])
def test_copies_have_equal_parameters_of_their_own(
    twin_of: Callable[[NormedLinear], NormedLinear], bias: bool
) -> None:
    layer, x = NormedLinear(3, 5, bias).eval(), torch.randn(2, 3)
    twin = twin_of(layer)
    assert torch.equal(twin(x), layer(x))
    assert twin.state_dict().keys() == layer.state_dict().keys()
    assert repr(twin) == repr(layer)
    assert not twin.training
    with torch.no_grad():
        twin.parametrizations.weight.original0.mul_(2)
    assert not torch.equal(twin(x), layer(x))


class Doubled(NormedLinear):
    """At module level for pickle."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def test_subclasses_can_be_pickled() -> None:
    layer, x = Doubled(3, 5), torch.randn(2, 3)
    twin = pickle.loads(pickle.dumps(layer))
    assert isinstance(twin, Doubled)
    assert torch.equal(twin(x), layer(x))


class DoubledWeight(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return 2 * weight


def test_a_first_use_without_graph_does_not_lose_the_graph() -> None:
    """The solve runs under ``no_grad``; the shared weight is on the graph all the same."""
    layer = nn.Linear(3, 3)
    parametrize.register_parametrization(layer, "weight", DoubledWeight())
    with shared_parametrizations(layer):
        with torch.no_grad():
            layer(torch.ones(1, 3))
        layer(torch.ones(1, 3)).sum().backward()
    with torch.no_grad(), shared_parametrizations(layer):
        assert not layer.weight.requires_grad  # the autograd mode of the caller decides
    original = layer.parametrizations["weight"].original  # type: ignore[union-attr, index]
    torch.testing.assert_close(original.grad, torch.full((3, 3), 2.0))
