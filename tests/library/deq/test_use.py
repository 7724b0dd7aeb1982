"""A layer in the hands of its user: set to other parts, called, nested, frozen, overwritten."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
from deq.estimators import SOLVER, every_estimator, parameter_gradients
from problems import CoupledCell, TanhCell, relative_error
from torch import Tensor, nn

from phantomgrad import (
    DEQ,
    AdaptiveDamping,
    BackpropThroughSolver,
    Broyden,
    FixedPoint,
    GradientEstimator,
    ImplicitGradient,
    NeumannPhantomGradient,
    Solver,
    UnrolledPhantomGradient,
    jacobian_regularizer,
)
from phantomgrad.nn import VariationalDropout

UPG = UnrolledPhantomGradient(5, 0.5)

# Other parts ----------------------------------------------------------------------------------


@every_estimator
def test_a_gradient_can_be_set(solver: Solver, gradient: GradientEstimator) -> None:
    x, deq = torch.randn(3, 4), DEQ(TanhCell(), FixedPoint(), UPG)
    deq.solver = solver
    deq.gradient = gradient
    expected = parameter_gradients(DEQ(TanhCell(), solver, gradient), x)
    assert relative_error(parameter_gradients(deq, x), expected) == 0


def test_what_does_not_go_together_cannot_be_set() -> None:
    deq = DEQ(TanhCell(), SOLVER, UPG)
    with pytest.raises(ValueError, match="BackpropThroughSolver needs a solver that autograd"):
        deq.gradient = BackpropThroughSolver()
    assert deq.gradient == UPG
    deq = DEQ(TanhCell(), FixedPoint(), BackpropThroughSolver())
    with pytest.raises(ValueError, match=r"\(FixedPoint\), got Broyden"):
        deq.solver = Broyden()
    assert deq.solver == FixedPoint()


def test_a_damping_is_followed_from_when_it_is_set() -> None:
    deq, x = DEQ(TanhCell(), SOLVER, UPG), torch.randn(3, 4)
    adaptive = AdaptiveDamping(every=1)
    deq.gradient = NeumannPhantomGradient(5, adaptive)
    parameter_gradients(deq, x)
    tracker = deq.damping_tracker
    assert tracker is not None
    assert tracker.radius is not None
    deq.gradient = UnrolledPhantomGradient(3, adaptive)
    assert deq.damping_tracker is tracker
    deq.gradient = UPG
    assert deq.damping_tracker is None
    assert not [name for name, _ in deq.named_modules() if "damping" in name]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.tanh, SOLVER, UPG), "cell must be a torch.nn.Module, got builtin"),
        (
            (TanhCell(), UPG, SOLVER),
            "solver must be an object with a method solve .*got Unro",
        ),
        ((TanhCell(), Broyden, UPG), "solver must be .*, got the class Broyden"),
        (
            (TanhCell(), SOLVER, "upg"),
            "gradient must be an object with a method attach .*got str",
        ),
    ],
)
def test_another_kind_of_part_is_named(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        DEQ(*arguments)


class Learnt(nn.Module):
    """A gradient with a parameter, which estimates by one step."""

    needs_recorded_solve, adaptation = False, None

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def attach(self, f: Any, z_star: Tensor, report: Any = None) -> Tensor:
        return self.scale * f(z_star)


def test_a_gradient_that_is_a_module_can_be_set() -> None:
    deq, learnt = DEQ(TanhCell(), SOLVER, UPG), Learnt()
    deq.gradient = learnt  # type: ignore[assignment]
    assert deq.gradient is learnt
    deq(torch.randn(3, 4))[0].sum().backward()
    assert learnt.scale.grad is not None
    assert any(parameter is learnt.scale for parameter in deq.parameters())


# Calls ----------------------------------------------------------------------------------------


class Masked(TanhCell):
    """Entries outside of a mask are zero."""

    def forward(self, z: Tensor, x: Tensor, *, mask: Tensor | None = None) -> Tensor:
        out = super().forward(z, x)
        return out if mask is None else out * mask


@every_estimator
def test_keywords_go_to_the_cell(solver: Solver, gradient: GradientEstimator) -> None:
    deq, x = DEQ(Masked(), solver, gradient), torch.randn(3, 4)
    z, _ = deq(x, mask=torch.tensor([1.0, 1.0, 0.0, 1.0]))
    assert (z[:, 2] == 0).all()
    assert (z[:, 0] != 0).all()
    assert deq(x)[0].all()


@pytest.mark.parametrize(
    ("z0", "message"),
    [
        ({"z": torch.zeros(3, 4)}, "must be a sequence of tensors, got dict"),
        ((torch.zeros(3, 4), None), "must be a sequence of tensors, got NoneType in it"),
    ],
)
def test_a_start_that_is_no_state_is_named(z0: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        DEQ(CoupledCell(), SOLVER, UPG)(torch.randn(3, 4), z0=z0)


def test_states_share_their_dtype() -> None:
    z0 = (torch.zeros(3, 4), torch.zeros(3, 2, 3, dtype=torch.float32))
    with pytest.raises(ValueError, match=r"share their dtype, got \['torch.float32', 'torch.fl"):
        DEQ(CoupledCell(), SOLVER, UPG)(torch.randn(3, 4), z0=z0)


def test_one_tensor_for_two_states_is_named() -> None:
    class Half(CoupledCell):
        def forward(self, z: Any, x: Tensor) -> Any:
            return super().forward(z, x)[0]

    z0 = (torch.zeros(3, 4), torch.zeros(3, 2, 3))
    with pytest.raises(TypeError, match="the result of f for several states must be a sequence"):
        DEQ(Half(), SOLVER, UPG)(torch.randn(3, 4), z0=z0)


@every_estimator
def test_a_start_from_inference_mode(solver: Solver, gradient: GradientEstimator) -> None:
    deq, x = DEQ(TanhCell(), solver, gradient), torch.randn(3, 4)
    with torch.inference_mode():
        warm, _ = deq(x)
    z, _ = deq(x, z0=warm)
    torch.autograd.grad(z.sum(), list(deq.parameters()))


@every_estimator
def test_the_result_may_be_overwritten(solver: Solver, gradient: GradientEstimator) -> None:
    deq, x = DEQ(TanhCell(), solver, gradient), torch.randn(3, 4)
    torch.relu_(deq(x)[0]).sum().backward()
    with torch.no_grad():
        warm, _ = deq(x)
        kept = warm.clone()
        again, _ = deq(x, z0=warm)
        again.zero_()
    assert torch.equal(warm, kept)


# Cells ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "remedy"),
    [
        (nn.Dropout(0.1), "VariationalDropout, which keeps its mask"),
        (nn.Dropout2d(0.1), "VariationalDropout, which keeps its mask"),
        (nn.BatchNorm1d(4), "normalise groups or layers"),
    ],
)
def test_a_cell_that_changes_between_evaluations_is_warned_of(
    module: nn.Module, remedy: str
) -> None:
    cell = TanhCell()
    cell.inner = module
    with pytest.warns(UserWarning, match=f"inner is a {type(module).__name__}.*{remedy}"):
        DEQ(cell, SOLVER, UPG)


@pytest.mark.parametrize("module", [nn.Dropout(0.0), VariationalDropout(0.1), nn.LayerNorm(4)])
def test_other_cells_are_not(module: nn.Module) -> None:
    cell = TanhCell()
    cell.inner = module
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DEQ(cell, SOLVER, UPG)


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dropout = VariationalDropout(0.4)

    def forward(self, z: Tensor, x: Tensor) -> Tensor:
        return self.dropout(torch.tanh(0.3 * z + x))


class Outer(nn.Module):
    """A map that solves for another equilibrium."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = DEQ(Inner(), SOLVER, UPG)

    def forward(self, z: Tensor, x: Tensor) -> Tensor:
        return 0.3 * torch.tanh(self.inner(z + x)[0])


def test_a_nested_equilibrium_has_the_masks_of_the_outer_one() -> None:
    outer, x = Outer().train(), torch.randn(8, 4)
    deq, dropout = DEQ(outer, SOLVER, UPG), outer.inner.cell.dropout
    _, solution = deq(x)
    assert solution.converged.all()
    first = dropout.mask
    deq(x)
    assert not torch.equal(dropout.mask, first)


def test_a_nested_equilibrium_that_is_no_part_of_the_cell_draws_masks_of_its_own() -> None:
    inner = DEQ(Inner(), SOLVER, UPG).train()

    class Around(nn.Module):
        def forward(self, z: Tensor, x: Tensor) -> Tensor:
            return 0.3 * torch.tanh(inner(z + x)[0])

    deq, masks = DEQ(Around(), SOLVER, UPG), []
    for batch in (8, 3):
        _, solution = deq(torch.randn(batch, 4))
        assert solution.converged.all()
        masks.append(inner.cell.dropout.mask)
    assert [len(mask) for mask in masks] == [8, 3]


class Reentrant(TanhCell):
    """Hides its parameters in a custom function."""

    def forward(self, z: Tensor, x: Tensor) -> Tensor:
        return torch.utils.checkpoint.checkpoint(super().forward, z, x, use_reentrant=True)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_what_cannot_be_seen_is_not_frozen() -> None:
    deq = DEQ(Reentrant(), SOLVER, NeumannPhantomGradient(3, 0.5))
    z, _ = deq(torch.randn(3, 4))
    assert z.requires_grad
    with pytest.raises(RuntimeError, match="checkpoint"):
        z.sum().backward()


@every_estimator
def test_a_frozen_cell_solves_no_adjoint(solver: Solver, gradient: GradientEstimator) -> None:
    deq = DEQ(TanhCell().requires_grad_(False), solver, gradient)
    z, _ = deq(torch.randn(3, 4))
    assert not z.requires_grad
    x = torch.randn(3, 4, requires_grad=True)
    deq(x)[0].sum().backward()
    assert x.grad is not None
    assert x.grad.all()


def test_a_layer_with_a_penalty_can_be_copied() -> None:
    deq, x = DEQ(TanhCell(), SOLVER, ImplicitGradient()), torch.randn(3, 4)
    deq.penalty = lambda f, z, attached: jacobian_regularizer(f, z)
    deq(x)
    assert deq.last_penalty is not None
    assert copy.deepcopy(deq).last_penalty is None
