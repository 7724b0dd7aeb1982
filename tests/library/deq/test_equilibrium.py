"""The layer's equilibrium and its gradient, of one state or several, from any start."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from deq.estimators import PICARD, SOLVER, every_estimator
from problems import (
    Counted,
    CoupledCell,
    TanhCell,
    exact_gradient,
    newton_equilibrium,
    relative_error,
)
from torch import Tensor, nn

from phantomgrad import (
    DEQ,
    Anderson,
    BackpropThroughSolver,
    Broyden,
    FixedPoint,
    GradientEstimator,
    ImplicitGradient,
    Solver,
)
from phantomgrad.nn import Packing


@pytest.mark.parametrize("solver", [FixedPoint(max_evaluations=400), Anderson(), Broyden()])
def test_the_output_is_the_equilibrium_with_its_exact_gradient(solver: Solver) -> None:
    cell, x = TanhCell(), torch.randn(3, 4, requires_grad=True)
    deq = DEQ(cell, replace(solver, tol=1e-12), ImplicitGradient(solver=SOLVER))
    z, solution = deq(x)
    expected = newton_equilibrium(lambda z: cell(z, x), torch.zeros(3, 4))
    torch.testing.assert_close(z, expected, rtol=0, atol=1e-10)
    assert torch.equal(solution.z, z)
    v, wanted = torch.randn(3, 4), [x, *cell.parameters()]
    ours = torch.autograd.grad(z, wanted, v)
    assert relative_error(ours, exact_gradient(lambda z: cell(z, x), expected, v, wanted)) < 1e-9


@every_estimator
def test_tuple_states_are_one_packed_state(solver: Solver, gradient: GradientEstimator) -> None:
    cell, x = CoupledCell(), torch.randn(3, 4, requires_grad=True)
    z0 = (torch.zeros(3, 4), torch.zeros(3, 2, 3))
    packing = Packing.of(z0)

    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = cell

        def forward(self, z: Tensor, x: Tensor) -> Tensor:
            return packing.pack(self.cell(packing.unpack(z), x))

    (a, b), solution = DEQ(cell, solver, gradient)(x, z0=list(z0))
    one, _ = DEQ(Packed(), solver, gradient)(x, z0=torch.zeros(3, 10))
    assert (a.shape, b.shape, solution.z.shape) == ((3, 4), (3, 2, 3), (3, 10))
    torch.testing.assert_close(packing.pack((a, b)), one, rtol=1e-12, atol=1e-12)
    next_a, next_b = cell((a, b), x)
    torch.testing.assert_close((next_a, next_b), (a, b), rtol=0, atol=1e-8)
    wanted = [x, *cell.parameters()]
    ours = torch.autograd.grad(a.sum() + b.square().sum(), wanted)
    parts = packing.unpack(one)
    expected = torch.autograd.grad(parts[0].sum() + parts[1].square().sum(), wanted)
    assert relative_error(ours, expected) < 1e-10


@every_estimator
def test_a_cell_may_take_several_inputs_of_any_kind(
    solver: Solver, gradient: GradientEstimator
) -> None:

    class Scaled(nn.Module):
        def forward(self, z: Tensor, x: Tensor, scale: float, extra: dict[str, Tensor]) -> Tensor:
            return scale * torch.cos(z) + x + extra["bias"]

    x, bias = torch.zeros(2, 3), torch.full((3,), 0.1, requires_grad=True)
    z, _ = DEQ(Scaled(), solver, gradient)(x, 0.3, {"bias": bias})
    torch.testing.assert_close(z, 0.3 * torch.cos(z) + 0.1)
    z.sum().backward()
    assert bias.grad is not None


def test_the_start_is_zeros_like_the_first_input() -> None:
    """Or what ``z0`` says; and it is not part of the graph."""
    cell = TanhCell()
    points = Counted(lambda z: z)
    seen = cell.register_forward_pre_hook(lambda _, args: (points(args[0]), *args[1:]))
    x, z0 = torch.randn(3, 4), torch.randn(3, 4, requires_grad=True)
    deq = DEQ(cell, PICARD, BackpropThroughSolver())
    deq(x)
    assert torch.equal(points.points[0], torch.zeros(3, 4))
    points.points.clear()
    z, _ = deq(x, z0=z0)
    assert torch.equal(points.points[0], z0)
    assert torch.autograd.grad(z.sum(), z0, allow_unused=True)[0] is None
    seen.remove()


def test_a_start_of_several_states_carries_no_gradient_either() -> None:
    z0 = (torch.zeros(3, 4, requires_grad=True), torch.zeros(3, 2, 3, requires_grad=True))
    (a, b), _ = DEQ(CoupledCell(), PICARD, BackpropThroughSolver())(torch.randn(3, 4), z0=z0)
    assert torch.autograd.grad(a.sum() + b.sum(), z0, allow_unused=True) == (None, None)


@pytest.mark.parametrize("inputs", [(), ("text",), (3.0,)])
def test_without_a_shape_there_is_an_error(inputs: tuple[object, ...]) -> None:
    """No first tensor, no ``z0``: the message says what is missing."""
    with pytest.raises(ValueError, match="z0 is needed if the first input is not a tensor"):
        DEQ(TanhCell(), SOLVER, ImplicitGradient())(*inputs)


def test_integer_inputs_need_a_start() -> None:
    with pytest.raises(ValueError, match=r"z0 must be a floating-point tensor, got torch\.int64"):
        DEQ(TanhCell(), SOLVER, ImplicitGradient())(torch.zeros(2, 4, dtype=torch.long))


def test_a_cell_that_changes_the_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"it maps \(2, 3\) to \(2, 4\)"):
        DEQ(nn.Linear(3, 4), SOLVER, ImplicitGradient())(z0=torch.zeros(2, 3))


def test_closed_map_knows_one_tensor() -> None:
    cell, x, start = CoupledCell(), torch.randn(3, 4), torch.randn(3, 4, requires_grad=True)
    states = (start, torch.randn(3, 2, 3))
    f, z, packing = DEQ(cell, SOLVER, ImplicitGradient()).close_over((x,), states)
    assert packing is not None
    assert not z.requires_grad
    torch.testing.assert_close(packing.unpack(f(z)), cell(states, x))
    single = TanhCell()
    f, z, packing = DEQ(single, SOLVER, ImplicitGradient()).close_over((x,), start)
    assert packing is None
    assert not z.requires_grad
    assert torch.equal(f(z), single(start, x))
