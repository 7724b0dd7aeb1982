"""Estimators compared with the exact gradient, against closed forms of affine maps."""

import math

import pytest
import torch
from problems import Affine, exact_gradient, relative_error

import phantomgrad as pg

TIGHT = pg.Broyden(max_evaluations=60, tol=1e-13)
LOOSE = pg.FixedPoint(max_evaluations=5, tol=0)
ONE_STEP = pg.UnrolledPhantomGradient(1, 1.0)


@pytest.fixture
def affine():
    return Affine.random()


@pytest.fixture
def v(affine):
    return torch.randn_like(affine.bias)


@pytest.mark.parametrize("kind", [pg.UnrolledPhantomGradient, pg.NeumannPhantomGradient])
@pytest.mark.parametrize("series", [(1, 1.0), (1, 0.5), (5, 0.5), (9, 0.5)])
def test_cosine_and_norm_ratio_are_the_dense_ones(affine, v, kind, series):
    wanted, z = [affine.weight, affine.bias], affine.equilibrium()
    ours = pg.estimated_gradient(affine, z, v, kind(*series), wanted)
    dense, exact = exact_gradient(affine, z, v, wanted, series), affine.exact_gradient(v)
    assert relative_error(ours, dense) < 1e-12
    a, b = (torch.cat([g.flatten() for g in group]) for group in (dense, exact))
    cosine, ratio = torch.cosine_similarity(a, b, dim=0).item(), (a.norm() / b.norm()).item()
    assert pg.agreement(ours, exact) == pytest.approx((cosine, ratio), rel=1e-12)
    assert 0 < cosine < 1 - 1e-6


def test_exact_gradient_is_the_dense_one_with_its_residuals(affine, v):
    rough, wanted = LOOSE.solve(affine, affine.zeros).z, (affine.weight, affine.bias)
    found = pg.exact_gradient(affine, rough, v, wanted, solver=TIGHT, adjoint=TIGHT)
    torch.testing.assert_close(found.z, affine.equilibrium(), rtol=1e-10, atol=1e-12)
    assert relative_error(found.gradient, affine.exact_gradient(v)) < 1e-10
    assert (torch.cat([found.residual, found.adjoint_residual]) < 1e-12).all()
    loose = pg.exact_gradient(affine, rough, v, wanted, solver=LOOSE, adjoint=LOOSE)
    assert (loose.residual > 1e-4).all()
    assert (loose.adjoint_residual > 1e-3).all()


def test_any_solver_solves_the_adjoint_equation(affine, v):
    wanted, start = (affine.weight, affine.bias), affine.zeros
    reversible = pg.Reversible(max_evaluations=400, tol=1e-12)
    found = pg.exact_gradient(affine, start, v, wanted, solver=TIGHT, adjoint=reversible)
    assert relative_error(found.gradient, affine.exact_gradient(v)) < 1e-9


@pytest.mark.parametrize("solver", [pg.FixedPoint(max_evaluations=60), pg.Steps(60)])
def test_exact_gradient_records_one_evaluation(affine, v, solver):
    """Also where autograd could record the solve."""
    recorded = []

    def f(z):
        fz = affine(z)
        recorded.append(fz.requires_grad)
        return fz

    found = pg.exact_gradient(f, affine.zeros, v, [affine.bias], solver=solver, adjoint=TIGHT)
    assert not found.z.requires_grad
    assert sum(recorded) == 1 < len(recorded)


@pytest.mark.parametrize("grad", [True, False])
def test_no_grad_is_accumulated_and_graphs_stay_usable(affine, v, grad):
    """This holds in any autograd mode."""
    shared = 1.0 * affine.weight
    f = Affine(shared, affine.bias)
    with torch.set_grad_enabled(grad):
        for _ in range(2):
            pg.estimated_gradient(f, affine.zeros, v, ONE_STEP, [affine.weight])
            pg.exact_gradient(f, affine.zeros, v, [affine.weight], solver=TIGHT, adjoint=TIGHT)
    shared.sum().backward()
    assert torch.equal(affine.weight.grad, torch.ones_like(affine.weight))
    assert affine.bias.grad is None


def test_unused_tensors_have_zero_gradients(affine, v):
    unused = torch.ones(2, requires_grad=True)
    (ours,) = pg.estimated_gradient(affine, affine.zeros, v, ONE_STEP, [unused])
    assert torch.equal(ours, torch.zeros(2))
    assert pg.estimated_gradient(affine, affine.zeros, v, ONE_STEP, []) == ()
    zeros = torch.zeros_like
    exact = pg.exact_gradient(zeros, affine.zeros, v, [unused], solver=TIGHT, adjoint=TIGHT)
    assert torch.equal(exact.gradient[0], torch.zeros(2))


def test_agreement_concatenates_the_tensors_in_double_precision():
    a = (torch.tensor([3.0]), torch.tensor([[4.0]]))
    b = (torch.tensor([8.0]), torch.tensor([[-6.0]]))
    assert pg.agreement(a, b) == pytest.approx((0.0, 0.5))
    assert pg.agreement(a, tuple(-2 * x for x in a)) == pytest.approx((-1.0, 0.5))
    exact = (torch.ones(1000, dtype=torch.float32),)
    estimate = (exact[0] + 1e-4 * torch.randn(1000).float(),)
    expected = torch.cosine_similarity(estimate[0].double(), exact[0].double(), dim=0)
    assert 1 - pg.agreement(estimate, exact).cosine == pytest.approx(1 - expected.item(), rel=1e-6)


def test_vanishing_gradients_have_no_direction():
    zero, one = (torch.zeros(2),), (torch.ones(2),)
    assert all(math.isnan(value) for value in pg.agreement(one, zero))
    found = pg.agreement(zero, one)
    assert math.isnan(found.cosine)
    assert found.norm_ratio == 0
