"""Linear maps with weight norm: equation and copies."""

import pickle

import pytest
import torch
from methods import assert_twins
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


class Doubled(NormedLinear):
    """A class at module level, so that pickle finds it."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


@pytest.mark.parametrize("kind", [NormedLinear, Doubled])
@pytest.mark.parametrize("bias", [False, True])
def test_copies_and_pickles(kind: type[NormedLinear], bias: bool) -> None:
    x = torch.randn(2, 3)
    assert_twins(lambda: kind(3, 5, bias), lambda layer: layer(x).square().sum())
    twin = pickle.loads(pickle.dumps(kind(3, 5, bias)))
    assert isinstance(twin, kind)
    assert repr(twin) == repr(kind(3, 5, bias))
