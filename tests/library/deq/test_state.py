"""What a layer keeps: copies, pickles, its state, and what it found last."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
from deq.estimators import SOLVER, every_estimator, parameter_gradients
from problems import TanhCell, relative_error

from phantomgrad import (
    DEQ,
    AdjointWarning,
    Broyden,
    FixedPoint,
    GradientEstimator,
    ImplicitGradient,
    NeumannPhantomGradient,
    Solver,
)


@every_estimator
@pytest.mark.parametrize("used", [False, True])
def test_copies_and_pickles_work_before_and_after_use(
    solver: Solver, gradient: GradientEstimator, used: bool
) -> None:
    deq, x = DEQ(TanhCell(), solver, gradient), torch.randn(3, 4)
    expected = parameter_gradients(deq, x) if used else None
    stream = io.BytesIO()
    torch.save(deq, stream)
    stream.seek(0)
    loaded = torch.load(stream, weights_only=False)
    for twin in (copy.deepcopy(deq), pickle.loads(pickle.dumps(deq)), loaded):
        ours = parameter_gradients(twin, x)
        assert relative_error(ours, expected or parameter_gradients(deq, x)) == 0


@every_estimator
def test_the_state_dict_holds_the_cell_alone(solver: Solver, gradient: GradientEstimator) -> None:
    deq = DEQ(TanhCell(), solver, gradient)
    before = set(deq.state_dict())
    parameter_gradients(deq, torch.randn(3, 4))
    assert set(deq.state_dict()) == before == {"cell.linear.weight", "cell.linear.bias"}
    deq.load_state_dict(deq.state_dict(), strict=True)


@every_estimator
def test_the_last_solution_is_kept_without_its_state(
    solver: Solver, gradient: GradientEstimator
) -> None:
    deq = DEQ(TanhCell(), solver, gradient)
    assert deq.last_solution is None
    _, solution = deq(torch.randn(3, 4))
    kept = deq.last_solution
    assert kept is not None
    assert kept.z.numel() == 0
    assert not kept.residual.requires_grad
    assert torch.equal(kept.residual, solution.residual)
    assert torch.equal(kept.evaluations, solution.evaluations)


@pytest.mark.parametrize("order", [1, 2])
def test_the_last_adjoint_is_that_of_the_last_backward(order: int) -> None:
    adjoint = Broyden(max_evaluations=60, tol=1e-10)
    deq = DEQ(TanhCell(), SOLVER, ImplicitGradient(solver=adjoint, order=order))
    z, _ = deq(torch.randn(3, 4))
    assert deq.last_adjoint is None
    z.square().sum().backward()
    assert deq.last_adjoint is not None
    assert deq.last_adjoint.z.numel() == 0
    assert deq.last_adjoint.converged.all()
    assert (deq.last_adjoint.evaluations > 2).all()
    phantom = DEQ(TanhCell(), SOLVER, NeumannPhantomGradient(5, 0.5))
    parameter_gradients(phantom, torch.randn(3, 4))
    assert phantom.last_adjoint is None


def test_a_failed_adjoint_warns_from_within_the_layer() -> None:
    short = FixedPoint(max_evaluations=2, tol=1e-9)
    deq = DEQ(TanhCell(), SOLVER, ImplicitGradient(solver=short, failure_residual=1e-3))
    with pytest.warns(AdjointWarning, match="the adjoint solve failed"):
        parameter_gradients(deq, torch.randn(3, 4))
    assert deq.last_adjoint is not None
    assert (deq.last_adjoint.residual > 1e-3).any()


def test_the_repr_shows_solver_and_gradient() -> None:
    text = repr(DEQ(TanhCell(), FixedPoint(damping=0.7), NeumannPhantomGradient(5, 0.5)))
    assert "FixedPoint(max_evaluations=40" in text
    assert "NeumannPhantomGradient(steps=5, damping=0.5, value='equilibrium')" in text
