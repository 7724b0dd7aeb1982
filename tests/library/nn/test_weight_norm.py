"""Linear maps with weight norm: equation and copies."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch import Tensor
from twins import Twin, assert_twin, twins

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


@twins(lambda layer: NormedLinear(3, 5, layer.bias is not None))
@pytest.mark.parametrize("bias", [False, True])
def test_copies_and_pickles(twin_of: Twin, bias: bool) -> None:
    layer, x = NormedLinear(3, 5, bias), torch.randn(2, 3)
    assert_twin(layer, twin_of, lambda layer: layer(x).square().sum(), used=False)
    assert repr(twin_of(layer)) == repr(layer)


class Doubled(NormedLinear):
    """At module level for pickle."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def test_subclasses_can_be_pickled() -> None:
    layer, x = Doubled(3, 5), torch.randn(2, 3)
    twin = pickle.loads(pickle.dumps(layer))
    assert isinstance(twin, Doubled)
    assert torch.equal(twin(x), layer(x))
