"""A linear map with weight norm: its equation, its start, its copies."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from phantomgrad.nn import NormedLinear


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
def test_twins_own_the_same_numbers(
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
    """Of a module, so that pickle finds it."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def test_a_subclass_comes_back_as_itself() -> None:
    layer, x = Doubled(3, 5), torch.randn(2, 3)
    twin = pickle.loads(pickle.dumps(layer))
    assert isinstance(twin, Doubled)
    assert torch.equal(twin(x), layer(x))
