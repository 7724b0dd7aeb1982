"""The equilibrium of a layer and its gradient, its states, inputs and start."""

from dataclasses import replace
from typing import NamedTuple

import pytest
import torch
from methods import SOLVER, every_estimator
from problems import CoupledCell, TanhCell, exact_gradient, newton_equilibrium, relative_error
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import phantomgrad as pg
from phantomgrad.packing import Packing


@pytest.mark.parametrize(
    "solver", [pg.FixedPoint(max_evaluations=400), pg.Anderson(), pg.Broyden()]
)
def test_the_output_is_the_equilibrium_with_its_exact_gradient(solver):
    cell, x = TanhCell(), torch.randn(3, 4, requires_grad=True)
    deq = pg.DEQ(cell, replace(solver, tol=1e-12), pg.ImplicitGradient(solver=SOLVER))
    z, solution = deq(x)
    expected = newton_equilibrium(lambda z: cell(z, x), torch.zeros(3, 4))
    torch.testing.assert_close(z, expected, rtol=0, atol=1e-10)
    assert torch.equal(solution.z, z)
    v, wanted = torch.randn(3, 4), [x, *cell.parameters()]
    ours = torch.autograd.grad(z, wanted, v)
    assert relative_error(ours, exact_gradient(lambda z: cell(z, x), expected, v, wanted)) < 1e-9


class PackedCell(nn.Module):
    """A cell of several states as a cell of one tensor."""

    def __init__(self, cell, packing):
        super().__init__()
        self.cell, self.packing = cell, packing

    def forward(self, z, x):
        return self.packing.pack(self.cell(self.packing.unpack(z), x))


@every_estimator
def test_tuple_states_are_one_packed_state(parts):
    cell, x = CoupledCell(), torch.randn(3, 4, requires_grad=True)
    z0, wanted = (torch.zeros(3, 4), torch.zeros(3, 2, 3)), [x, *cell.parameters()]
    packing = Packing.of(z0)
    states, solution = pg.DEQ(cell, *parts)(x, z0=z0)
    one, _ = pg.DEQ(PackedCell(cell, packing), *parts)(x, z0=torch.zeros(3, 10))
    assert [tuple(z.shape) for z in (*states, solution.z)] == [(3, 4), (3, 2, 3), (3, 10)]
    torch.testing.assert_close(packing.pack(states), one, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(cell(states, x), states, rtol=0, atol=1e-8)
    ours, expected = (
        torch.autograd.grad(a.sum() + b.square().sum(), wanted)
        for a, b in (states, packing.unpack(one))
    )
    assert relative_error(ours, expected) < 1e-10


@every_estimator
def test_a_cell_takes_inputs_and_keywords_of_any_kind(parts):
    class Scaled(nn.Module):
        def forward(self, z, x, scale, *, extra):
            return scale * torch.cos(z) + x + extra["bias"]

    x, bias = torch.zeros(2, 3), torch.full((3,), 0.1, requires_grad=True)
    z, _ = pg.DEQ(Scaled(), *parts)(x, 0.3, extra={"bias": bias})
    torch.testing.assert_close(z, 0.3 * torch.cos(z) + 0.1)
    z.sum().backward()
    assert bias.grad is not None


@every_estimator
def test_the_start_gets_a_gradient_only_from_a_recorded_solve(parts):
    deq, z0 = pg.DEQ(TanhCell(), *parts), torch.randn(3, 4, requires_grad=True)
    z, _ = deq(torch.randn(3, 4), z0=z0)
    gradient = torch.autograd.grad(z.sum(), z0, allow_unused=True)[0]
    assert (gradient is not None) == isinstance(deq.gradient, pg.BackpropThroughSolver)


@every_estimator
def test_the_start_may_be_an_inference_tensor(parts):
    deq, x = pg.DEQ(TanhCell(), *parts), torch.randn(3, 4)
    with torch.inference_mode():
        warm, _ = deq(x)
    z, _ = deq(x, z0=warm)
    torch.autograd.grad(z.sum(), list(deq.parameters()))


@every_estimator
def test_the_result_may_be_overwritten(parts):
    """With a graph or without, this does not affect the start, which may be an earlier result."""
    deq, x = pg.DEQ(TanhCell(), *parts), torch.randn(3, 4)
    torch.relu_(deq(x)[0]).sum().backward()
    with torch.no_grad():
        warm, _ = deq(x)
        kept = warm.clone()
        again, _ = deq(x, z0=warm)
        again.zero_()
    assert torch.equal(warm, kept)


class Convolution(nn.Module):
    """A contraction on images; records whether its states are channels last in memory."""

    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(3, 3, 3, padding=1)
        with torch.no_grad():
            self.convolution.weight.mul_(0.3)
        self.channels_last = set()

    def forward(self, z, x):
        self.channels_last.add(z.is_contiguous(memory_format=torch.channels_last))
        return torch.tanh(self.convolution(z) + x)


@every_estimator
def test_images_keep_their_memory_format(parts):
    """A transposition at every evaluation would double the time of a small cell."""
    found = []
    for memory_format in (torch.contiguous_format, torch.channels_last):
        torch.manual_seed(0)
        deq = pg.DEQ(Convolution(), *parts)
        x = torch.randn(2, 3, 4, 5).contiguous(memory_format=memory_format).requires_grad_()
        z, solution = deq(x)
        assert deq.cell.channels_last == {memory_format == torch.channels_last}
        for state in (z, solution.z):
            assert state.shape == x.shape
            assert state.is_contiguous(memory_format=memory_format)
        found.append(
            (z.detach(), *torch.autograd.grad(z.square().sum(), [x, *deq.cell.parameters()]))
        )
    assert relative_error(*found) < 1e-9


class Pair(NamedTuple):
    """A named state."""

    first: Tensor
    second: Tensor


@pytest.mark.parametrize(
    "nested",
    [
        lambda a, b: Pair(a, b),
        lambda a, b: {"first": a, "second": b},
        lambda a, b: (a, {"rest": [b]}),
    ],
    ids=["named tuple", "dictionary", "nested"],
)
def test_states_keep_their_structure(nested):
    """The equilibrium is that of the plain tuple, in the structure of the start."""
    plain, x = CoupledCell(), torch.randn(3, 4)
    a, b = torch.zeros(3, 4), torch.zeros(3, 2, 3)

    class Nested(nn.Module):
        def forward(self, z, x):
            return nested(*plain(tuple(tree_leaves(z)), x))

    expected, _ = pg.DEQ(plain, SOLVER, pg.ImplicitGradient())(x, z0=(a, b))
    z, _ = pg.DEQ(Nested(), SOLVER, pg.ImplicitGradient())(x, z0=nested(a, b))
    assert type(z) is type(nested(a, b))
    torch.testing.assert_close(tuple(tree_leaves(z)), expected)


def test_another_structure_is_refused():
    class Renamed(nn.Module):
        def forward(self, z, x):
            return {"b": z["a"]}

    layer = pg.DEQ(Renamed(), SOLVER, pg.ImplicitGradient())
    with pytest.raises(ValueError, match=r"keep the structure .* {'a': \*} to {'b': \*}"):
        layer(torch.zeros(2, 3), z0={"a": torch.zeros(2, 3)})


@pytest.mark.parametrize(("returned", "got"), [(torch.zeros(()), r"\(\)"), (None, "NoneType")])
def test_an_estimator_that_returns_another_shape_is_named(returned, got):
    class Other(pg.GradientEstimator):
        def attach(self, f, z_star, report=None):
            return returned

    with pytest.raises(ValueError, match=rf"attach of Other must .* z_star, \(3, 4\), got {got}"):
        pg.DEQ(TanhCell(), SOLVER, Other())(torch.zeros(3, 4))
