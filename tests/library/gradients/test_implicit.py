"""Implicit differentiation: dense solves, closed forms, finite differences, failed adjoints."""

import warnings
from dataclasses import replace

import pytest
import torch
from methods import GMRES, SOLVERS, every_norm, every_stop
from problems import (
    Affine,
    Counted,
    TanhCell,
    exact_gradient,
    newton_equilibrium,
    relative_error,
)

import phantomgrad as pg

TIGHT = pg.Broyden(max_evaluations=60, tol=1e-14)
VARIANTS = {
    "order 1": {},
    "order 2": {"order": 2},
    "image": {"at": "image"},
}
every_variant = pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)


@pytest.mark.parametrize("solver", [*SOLVERS.values(), GMRES], ids=[*SOLVERS, "gmres"])
@every_variant
def test_the_gradient_is_the_dense_solve(solver, options):
    """The expected gradient is ``df/dtheta^T (I - J)^-T v``."""
    cell, x, v = TanhCell(), torch.randn(3, 4, requires_grad=True), torch.randn(3, 4)
    f = lambda z: cell(z, x)  # noqa: E731
    z, wanted = newton_equilibrium(f, torch.zeros(3, 4)), [x, *cell.parameters()]
    solver = replace(solver, max_evaluations=400, tol=1e-12)
    attached = pg.ImplicitGradient(solver=solver, **options).attach(f, z)
    torch.testing.assert_close(attached, z, rtol=0, atol=1e-12 if "at" in options else 0)
    ours = torch.autograd.grad(attached, wanted, v)
    assert relative_error(ours, exact_gradient(f, z, v, wanted)) < 1e-9


def test_gradcheck_of_both_orders():
    """Finite differences of the solved equilibrium agree with its attached derivatives."""

    def equilibrium(x, weight):
        f = lambda z: torch.tanh(z @ weight.mT + x)  # noqa: E731
        z = TIGHT.solve(f, torch.zeros(2, 2)).z
        return pg.ImplicitGradient(solver=TIGHT, order=2).attach(f, z)

    x, weight = torch.randn(2, 2, requires_grad=True), TanhCell(size=2).linear.weight
    assert torch.autograd.gradcheck(equilibrium, (x, weight), atol=1e-7)
    assert torch.autograd.gradgradcheck(equilibrium, (x, weight), atol=1e-6)


@pytest.mark.parametrize("order", [2, 3])
def test_derivatives_up_to_the_order_are_exact(order):
    """``sqrt(theta)`` solves ``z + (theta - z^2) / 4``; the next derivative is wrong."""
    theta = torch.tensor([[0.5, 1.0, 2.0]], requires_grad=True)
    closed = [theta**-0.5 / 2, -(theta**-1.5) / 4, 3 * theta**-2.5 / 8, -15 * theta**-3.5 / 16]
    f = lambda z: z + (theta - z.square()) / 4  # noqa: E731
    z = pg.ImplicitGradient(solver=TIGHT, order=order).attach(f, theta.sqrt().detach())
    for expected in closed[:order]:
        (z,) = torch.autograd.grad(z.sum(), theta, create_graph=True)
        torch.testing.assert_close(z, expected, rtol=1e-9, atol=1e-9)
    (z,) = torch.autograd.grad(z.sum(), theta, create_graph=True)
    assert not torch.allclose(z, closed[order], rtol=1e-2)


@pytest.mark.parametrize(
    ("options", "evaluations"), [*zip(VARIANTS.values(), (1, 3, 2), strict=True)]
)
def test_evaluations_of_f_and_second_derivatives(options, evaluations):
    """The adjoint solve never evaluates f; only order 2 has second derivatives."""
    affine = Counted(Affine.random())
    attached = pg.ImplicitGradient(**options).attach(affine, torch.zeros(3, 5))
    attached.sum().backward(retain_graph=True)
    assert affine.calls == evaluations
    if "order" not in options:
        with pytest.raises(RuntimeError, match=r"use ImplicitGradient\(order=2\)"):
            torch.autograd.grad(attached.square().sum(), affine.f.bias, create_graph=True)


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_the_adjoint_solve_is_reported(order, scale):
    """``report`` receives the solution of each solve, for every order and scale of the loss."""
    affine, v, seen = Affine.random(), scale * torch.randn(3, 5), list[pg.Solution]()
    gradient = pg.ImplicitGradient(solver=replace(TIGHT, tol=1e-12), order=order)
    gradient.attach(affine, affine.equilibrium(), seen.append).backward(v)
    (solution,) = seen
    assert solution.converged.all()
    expected = affine.adjoint(v) / scale
    for found in (solution.z, affine.bias.grad):
        torch.testing.assert_close(found / scale, expected, rtol=1e-9, atol=1e-9)


def test_a_zero_cotangent_is_not_a_failure():
    affine, v = Affine.random(), torch.randn(3, 5)
    v[1] = 0
    pg.ImplicitGradient().attach(affine, affine.equilibrium()).backward(v)
    assert not affine.bias.grad[1].any()


@pytest.mark.parametrize("at", ["equilibrium", "image"])
def test_the_jacobian_is_taken_at_the_equilibrium_or_the_image(at):
    """At z, ``f(z) = a z^2 + b`` gives ``v / (1 - 2 a z)``; df/da is taken at z0."""
    a = torch.tensor([[0.3], [0.2]], requires_grad=True)
    b = torch.tensor([[0.1], [0.4]], requires_grad=True)
    f = lambda z: a * z.square() + b  # noqa: E731
    z0, v = torch.tensor([[0.7], [-0.6]]), torch.tensor([[1.5], [-2.0]])
    attached = pg.ImplicitGradient(solver=TIGHT, at=at).attach(f, z0)
    point = z0 if at == "equilibrium" else f(z0).detach()
    torch.testing.assert_close(attached, point)
    u = v / (1 - 2 * a.detach() * point)
    by_a, by_b = torch.autograd.grad(attached, (a, b), v)
    torch.testing.assert_close((by_a, by_b), (z0.square() * u, u), rtol=1e-12, atol=0)


HOPELESS = pg.FixedPoint(max_evaluations=4, tol=1e-12, stop="absolute")


def expanding():
    """Sample 1 has a Jacobian of radius 3, on which a fixed-point adjoint diverges."""
    weight = 0.001 * torch.eye(5).repeat(3, 1, 1)
    weight[1] *= 3000
    return Affine(weight.requires_grad_(), torch.randn(3, 5, requires_grad=True))


def bias_gradient(v, **options):
    """The gradient of ``<v, z*>`` by the bias of the map that expands for sample 1."""
    affine = expanding()
    gradient = pg.ImplicitGradient(**{"solver": HOPELESS, **options})
    (result,) = torch.autograd.grad(gradient.attach(affine, affine.equilibrium()), affine.bias, v)
    return result


def test_a_failed_adjoint_warns_once_and_gives_the_one_step_gradient():
    v = torch.randn(3, 5)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")  # shows every text once
        for _ in range(3):
            result = bias_gradient(v)
    expected = torch.stack([v[0] / 0.999, v[1], v[2] / 0.999])
    torch.testing.assert_close(result, expected, rtol=1e-9, atol=1e-9)
    (warning,) = seen
    assert warning.category is pg.AdjointWarning
    assert "failed for some samples: relative residual above 0.1" in str(warning.message)


def test_a_failed_adjoint_can_raise_or_be_ignored():
    v = torch.randn(3, 5)
    message = (
        "failed for 1 of 3 samples: relative residual .*, above 0.1, after 4 evaluations; "
        "raise max_evaluations"
    )
    with pytest.raises(pg.AdjointError, match=message):
        bias_gradient(v, on_failure="raise")
    torch.testing.assert_close(bias_gradient(v, on_failure="ignore")[1], v[1])


def test_a_nan_jacobian_fails_for_its_sample_only():
    """``sqrt`` has no derivative at 0: that sample warns and keeps v, the other is exact."""
    x = torch.tensor([[0.0, 0.0], [0.3, 0.5]], requires_grad=True)
    f = lambda z: 0.5 * torch.sqrt(z.square()) + x  # noqa: E731
    z, v = torch.tensor([[0.0, 0.0], [0.6, 1.0]]), torch.ones(2, 2)
    attached = pg.ImplicitGradient().attach(f, z)
    with pytest.warns(pg.AdjointWarning, match="failed for some samples"):
        (result,) = torch.autograd.grad(attached, x, v)
    torch.testing.assert_close(result, torch.tensor([[1.0, 1.0], [2.0, 2.0]]))


@every_stop
@every_norm
def test_failure_is_judged_by_the_relative_residual(stop, norm):
    """An absolute residual of 1e-8 is a failure for a cotangent of that size."""
    solver = replace(HOPELESS, stop=stop, norm=norm, tol=1e-7)
    with pytest.warns(pg.AdjointWarning, match="failed for some samples"):
        bias_gradient(torch.full((3, 5), 1e-8), solver=solver)


def test_a_slow_adjoint_above_the_threshold_fails():
    affine, v = Affine.random(norm=0.9), torch.randn(3, 5)
    short = pg.FixedPoint(max_evaluations=3, tol=1e-12)
    attach = lambda threshold: pg.ImplicitGradient(  # noqa: E731
        solver=short, failure_residual=threshold
    ).attach(affine, affine.equilibrium())
    residual = short.solve(lambda u: (affine.weight.mT @ u.unsqueeze(2)).squeeze(2) + v, v).residual
    worst = residual.max().item()
    attach(1.01 * worst).backward(v)
    with pytest.warns(pg.AdjointWarning, match="failed for some samples"):
        attach(0.99 * worst).backward(v)


@pytest.mark.parametrize("stop", ["absolute", "relative"])
def test_a_diverging_adjoint_is_no_larger_than_the_one_step_gradient(stop):
    """``u = v - 2 u`` from 1 grows, so its relative residual falls; its difference does not."""
    affine = Affine(torch.full((1, 1, 1), -2.0), torch.ones(1, 1, requires_grad=True))
    adjoint = pg.FixedPoint(max_evaluations=40, stop=stop)
    attached = pg.ImplicitGradient(solver=adjoint).attach(affine, affine.equilibrium())
    with pytest.warns(pg.AdjointWarning, match="failed for some samples"):
        attached.sum().backward()
    assert affine.bias.grad.item() == 1


@pytest.mark.usefixtures("float32")
@pytest.mark.parametrize("scale", [2.0**-80, 2.0**80])
def test_losses_of_any_size_have_the_same_gradient(scale):
    """In float32 the squares of such cotangents are zero or infinite."""
    v, found = torch.randn(3, 5), []
    for s in (1.0, scale):
        affine = Affine.random()
        pg.ImplicitGradient().attach(affine, affine.equilibrium()).backward(s * v)
        found.append(affine.bias.grad / s)
    torch.testing.assert_close(*found)
