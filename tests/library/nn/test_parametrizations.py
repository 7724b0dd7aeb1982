"""Linear maps with weight norm: equation and copies; weights of a pass in copies and threads."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch
from methods import SOLVER, assert_twins, parameter_gradients
from problems import TanhCell, relative_error
from torch.nn.utils.parametrizations import weight_norm

from phantomgrad import DEQ, ImplicitGradient
from phantomgrad.nn import NormedLinear


@pytest.mark.parametrize("bias", [False, True])
def test_rows_are_directions_times_gains(bias):
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

    def forward(self, x):
        return 2 * super().forward(x)


@pytest.mark.parametrize("kind", [NormedLinear, Doubled])
@pytest.mark.parametrize("bias", [False, True])
def test_copies_and_pickles(kind, bias):
    x = torch.randn(2, 3)
    assert_twins(lambda: kind(3, 5, bias), lambda layer: layer(x).square().sum())
    twin = pickle.loads(pickle.dumps(kind(3, 5, bias)))
    assert isinstance(twin, kind)
    assert repr(twin) == repr(kind(3, 5, bias))


class Twice(TanhCell):
    """A cell with a linear map and a copy of it, which has other weights."""

    def __init__(self):
        super().__init__(norm=0.4)
        self.other = copy.deepcopy(weight_norm(self.linear))
        with torch.no_grad():
            self.other.parametrizations.weight.original0.mul_(-0.5)

    def forward(self, z, x):
        return torch.tanh(self.linear(z) + self.other(z) + x)


def test_a_copied_module_has_weights_of_its_own():
    """The cache of torch would take a copy for the original."""
    cell, x = Twice(), torch.randn(3, 4)
    z, _ = DEQ(cell, SOLVER, ImplicitGradient(solver=SOLVER))(x)
    torch.testing.assert_close(cell(z, x), z, rtol=0, atol=1e-9)


def test_threads_have_weights_of_their_own():
    """Each pass is in the middle of its solve when another one starts, or ends."""
    barrier = Barrier(2)

    class Waiting(TanhCell):
        def forward(self, z, x):
            if not self.met.pop(id(x), True):
                barrier.wait(timeout=60)
            return super().forward(z, x)

    cell, xs = Waiting(), torch.randn(2, 3, 4).unbind()
    weight_norm(cell.linear)
    cell.met = {}
    deq = DEQ(cell, SOLVER, ImplicitGradient(solver=SOLVER))
    deq.check_map = False
    expected = [parameter_gradients(deq, x) for x in xs]
    cell.met = {id(x): False for x in xs}
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(lambda x: parameter_gradients(deq, x), xs))
    for ours, alone in zip(found, expected, strict=True):
        assert relative_error(ours, alone) < 1e-12
