"""Adjoint solves that start from, and are preconditioned by, what the forward solve has left."""

from dataclasses import replace

import pytest
import torch
from golden.adjoint import ZERO, V, f
from problems import (
    Counted,
    TanhCell,
    dense_jacobian,
    exact_gradient,
    newton_equilibrium,
    relative_error,
    saved_tensors,
)

import phantomgrad as pg

FORWARD = pg.Broyden(max_evaluations=40, tol=1e-10)
FEW = pg.Broyden(max_evaluations=6, tol=0)
LARGE = {
    "broyden": pg.Broyden(max_evaluations=80, tol=1e-13),
    "gmres": pg.GMRES(max_evaluations=30, tol=1e-13),
    "anderson": pg.Anderson(max_evaluations=80, tol=1e-13),
}


def preconditioned(solver, **options):
    return pg.ImplicitGradient(
        solver=solver, preconditioner="forward", on_failure="ignore", **options
    )


def layer(gradient, solver=FORWARD):
    return pg.DEQ(TanhCell(size=12, norm=1.3), solver, gradient)


@pytest.mark.parametrize("solver", LARGE.values(), ids=LARGE)
@pytest.mark.parametrize("at", ["equilibrium", "image"])
def test_with_a_large_budget_the_gradient_is_exact(solver, at):
    deq, x = layer(preconditioned(solver, at=at)), torch.randn(5, 12, requires_grad=True)
    v, wanted = torch.randn(5, 12), [x, *deq.parameters()]
    z, _ = deq(x)
    ours = torch.autograd.grad(z, wanted, v)
    assert deq.last_adjoint.converged.all()
    exact = exact_gradient(lambda z: deq.cell(z, x), z.detach(), v, wanted)
    assert relative_error(ours, exact) < (1e-9 if at == "equilibrium" else 1e-8)


def test_the_adjoint_iterates_are_those_of_the_dense_method():
    """Broyden's method from ``u = -H^T v`` with ``H^T`` as its first inverse."""
    z = newton_equilibrium(f, ZERO)
    jacobian = dense_jacobian(f, z).mT
    found = replace(FEW, keep_inverse=True).solve(f, ZERO).inverse
    p = torch.stack([found.transposed(e.expand(2, 5)) for e in torch.eye(5)], dim=2)
    counted = Counted(lambda u: (jacobian @ u.unsqueeze(2)).squeeze(2))
    solve = lambda u: u + found.transposed(counted(u) - u)  # noqa: E731
    FEW.solve_linear(solve, found.transposed(V))
    for sample in range(2):
        h, u, s = -p[sample], p[sample] @ V[sample], torch.zeros(5)
        before = None
        for point in counted.points:
            torch.testing.assert_close(point[sample], u, rtol=0, atol=1e-10)
            g = jacobian[sample] @ u + V[sample] - u
            if before is not None:
                y = g - before
                h = h + torch.outer(s - h @ y, s @ h) / (s @ h @ y)
            before, s = g, -h @ g
            u = u + s


def test_few_products_are_closer_than_without():
    """At five products, and no worse with fewer."""
    x, v = torch.randn(16, 12, requires_grad=True), torch.randn(16, 12)
    cell = TanhCell(size=12, norm=1.3)
    z = FORWARD.solve(lambda z: cell(z, x).detach(), torch.zeros(16, 12)).z
    exact = exact_gradient(lambda z: cell(z, x), z, v, [x])
    errors = {}
    for m in (1, 2, 5):
        ahead = preconditioned(pg.GMRES(max_evaluations=m, tol=0))
        for gradient in (ahead, replace(ahead, preconditioner=None)):
            found = torch.autograd.grad(layer(gradient)(x)[0], x, v)
            errors[m, gradient.preconditioner] = relative_error(found, exact)
    assert all(errors[m, "forward"] < errors[m, None] for m in (1, 2, 5))
    assert errors[5, "forward"] < 0.3 * errors[5, None]


def test_after_a_restart_it_is_the_plain_adjoint():
    x, v = torch.randn(3, 12), torch.randn(3, 12)
    forward = pg.Broyden(max_evaluations=5, tol=0, memory=3)
    results = []
    for gradient in (preconditioned(FEW), pg.ImplicitGradient(solver=FEW, on_failure="ignore")):
        deq = layer(gradient, forward)
        results.append(torch.autograd.grad(deq(x)[0], list(deq.parameters()), v))
    torch.testing.assert_close(*results, rtol=1e-12, atol=1e-12)


def test_the_steps_are_freed_after_the_backward_pass():
    """Whoever keeps the solution, or the equilibrium with its graph, does not keep the steps."""
    deq = layer(preconditioned(FEW))
    with saved_tensors() as alive:
        z, solution = deq(torch.randn(3, 12))
        loss = z.square().sum()
        before = alive()
        assert solution.inverse is deq.last_solution.inverse is None
        loss.backward(retain_graph=True)
        assert alive() == before
        loss.backward()
        assert alive() == 0
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()


def test_without_a_graph_no_inverse_is_kept():
    seen = []

    class Seen(pg.ImplicitGradient):
        def after(self, solution):
            seen.append(solution.inverse)
            return super().after(solution)

    deq = layer(Seen(preconditioner="forward"))
    with torch.no_grad():
        deq(torch.randn(3, 12))
    assert seen == []
    deq(torch.randn(3, 12))
    assert seen[0] is not None


def test_an_inverse_of_ones_own_solve():
    cell, x = TanhCell(), torch.randn(3, 4, requires_grad=True)
    solution = replace(FORWARD, keep_inverse=True).solve(
        lambda z: cell(z, x).detach(), torch.zeros(3, 4)
    )
    estimator = pg.ImplicitGradient(solver=FORWARD, preconditioner=solution.inverse)
    wanted, v = [x, *cell.parameters()], torch.randn(3, 4)
    found = pg.estimated_gradient(lambda z: cell(z, x), solution.z, v, estimator, wanted)
    exact = exact_gradient(lambda z: cell(z, x), solution.z, v, wanted)
    assert relative_error(found, exact) < 1e-9
