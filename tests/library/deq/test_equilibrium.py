"""The equilibrium of a layer and its gradient, its states, inputs and start."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from methods import PICARD, SOLVER, Parts, every_estimator
from problems import CoupledCell, TanhCell, exact_gradient, newton_equilibrium, relative_error
from torch import Tensor, nn

from phantomgrad import (
    DEQ,
    Anderson,
    BackpropThroughSolver,
    Broyden,
    FixedPoint,
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
def test_tuple_states_are_one_packed_state(parts: Parts) -> None:
    cell, x = CoupledCell(), torch.randn(3, 4, requires_grad=True)
    z0 = (torch.zeros(3, 4), torch.zeros(3, 2, 3))
    packing = Packing.of(z0)

    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = cell

        def forward(self, z: Tensor, x: Tensor) -> Tensor:
            return packing.pack(self.cell(packing.unpack(z), x))

    (a, b), solution = DEQ(cell, *parts)(x, z0=list(z0))
    one, _ = DEQ(Packed(), *parts)(x, z0=torch.zeros(3, 10))
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
def test_a_cell_takes_inputs_and_keywords_of_any_kind(parts: Parts) -> None:
    class Scaled(nn.Module):
        def forward(
            self, z: Tensor, x: Tensor, scale: float, *, extra: dict[str, Tensor]
        ) -> Tensor:
            return scale * torch.cos(z) + x + extra["bias"]

    x, bias = torch.zeros(2, 3), torch.full((3,), 0.1, requires_grad=True)
    z, _ = DEQ(Scaled(), *parts)(x, 0.3, extra={"bias": bias})
    torch.testing.assert_close(z, 0.3 * torch.cos(z) + 0.1)
    z.sum().backward()
    assert bias.grad is not None


def test_the_solver_starts_at_zero_or_z0_which_gets_no_gradient() -> None:
    cell, x, z0 = TanhCell(), torch.randn(3, 4), torch.randn(3, 4, requires_grad=True)
    starts: list[Tensor] = []
    cell.register_forward_pre_hook(lambda _, args: starts.append(args[0]))
    deq = DEQ(cell, PICARD, BackpropThroughSolver())
    deq(x)
    assert torch.equal(starts[0], torch.zeros(3, 4))
    starts.clear()
    z, _ = deq(x, z0=z0)
    assert torch.equal(starts[0], z0)
    assert torch.autograd.grad(z.sum(), z0, allow_unused=True)[0] is None


@every_estimator
def test_the_start_may_be_an_inference_tensor(parts: Parts) -> None:
    deq, x = DEQ(TanhCell(), *parts), torch.randn(3, 4)
    with torch.inference_mode():
        warm, _ = deq(x)
    z, _ = deq(x, z0=warm)
    torch.autograd.grad(z.sum(), list(deq.parameters()))


@every_estimator
def test_the_result_may_be_overwritten(parts: Parts) -> None:
    """With and without a graph; the start, which may be an earlier result, is not affected."""
    deq, x = DEQ(TanhCell(), *parts), torch.randn(3, 4)
    torch.relu_(deq(x)[0]).sum().backward()
    with torch.no_grad():
        warm, _ = deq(x)
        kept = warm.clone()
        again, _ = deq(x, z0=warm)
        again.zero_()
    assert torch.equal(warm, kept)


def test_close_over_returns_the_map_of_one_packed_tensor() -> None:
    cell, x, start = CoupledCell(), torch.randn(3, 4), torch.randn(3, 4, requires_grad=True)
    states = (start, torch.randn(3, 2, 3))
    f, z, packing = DEQ(cell, SOLVER, ImplicitGradient()).close_over((x,), states)
    assert packing is not None
    assert not z.requires_grad
    torch.testing.assert_close(packing.unpack(f(z)), cell(states, x))


@pytest.mark.parametrize("inputs", [(), ("text",), (3.0,)])
def test_z0_is_required_if_the_first_input_is_no_tensor(inputs: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match="z0 is needed if the first input is not a tensor"):
        DEQ(TanhCell(), SOLVER, ImplicitGradient())(*inputs)


X = torch.zeros(3, 4, dtype=torch.float64)


class TanhOfFirst(nn.Module):
    """Returns one of its two states."""

    def forward(self, z: Any, x: Tensor) -> Any:
        return torch.tanh(z[0])


@pytest.mark.parametrize(
    ("cell", "x", "z0", "error", "message"),
    [
        (TanhCell, torch.zeros(2, 4).long(), None, ValueError, "z0 must be a floating-point ten"),
        (CoupledCell, X, {"z": 1}, TypeError, "sequence of tensors, got dict"),
        (CoupledCell, X, (X, None), TypeError, "got NoneType in it"),
        (CoupledCell, X, (X, X.float()), ValueError, r"share their dtype, got \['torch.float32'"),
        (TanhOfFirst, X, (X, X), TypeError, "the result of f for several states must be a sequ"),
    ],
)
def test_bad_states_are_refused(
    cell: type[nn.Module], x: Tensor, z0: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        DEQ(cell(), SOLVER, ImplicitGradient())(x, z0=z0)
