"""Properties of all estimators; backpropagation through the solver."""

import pytest
import torch
from methods import ESTIMATORS
from problems import Affine, TanhCell, relative_error, saved_tensors

import phantomgrad as pg

GRADIENTS = {
    name: parts.gradient
    for name, parts in ESTIMATORS.items()
    if not parts.gradient.needs_recorded_solve and name != "implicit, preconditioned"
}
every_gradient = pytest.mark.parametrize("gradient", GRADIENTS.values(), ids=GRADIENTS)


@every_gradient
@pytest.mark.parametrize("shape", [(1,), (3,), (3, 2), (1, 2, 3), (2, 3, 1, 2)], ids=str)
def test_states_of_every_shape(gradient, shape):
    """The map is ``f(z) = a z + b`` elementwise, with closed-form gradients by b."""
    a = torch.linspace(-0.5, 0.5, torch.Size(shape).numel()).view(shape)
    b = torch.ones(shape, requires_grad=True)
    f = lambda z: a * z + b  # noqa: E731
    with torch.no_grad():
        z = pg.Anderson(max_evaluations=200, tol=1e-12).solve(f, torch.zeros(shape)).z
    attached = gradient.attach(f, z)
    torch.testing.assert_close(attached, 1 / (1 - a), rtol=1e-9, atol=1e-9)
    v = torch.linspace(1, 2, a.numel()).view(shape)
    (ours,) = torch.autograd.grad(attached, b, v)
    missing = 0 if isinstance(gradient, pg.ImplicitGradient) else (0.5 * a + 0.5) ** 5
    torch.testing.assert_close(ours, (1 - missing) / (1 - a) * v, rtol=1e-9, atol=1e-9)


@every_gradient
def test_no_gradient_reaches_z_star(gradient):
    """``z_star`` is a constant: whatever produced it gets no gradient."""
    affine = Affine.random()
    z_star = affine.equilibrium().requires_grad_()
    (grad,) = torch.autograd.grad(gradient.attach(affine, z_star).sum(), z_star, allow_unused=True)
    assert grad is None


def test_memory_of_neumann_and_implicit_does_not_grow():
    affine = Affine.random()

    def saved(gradient):
        with saved_tensors() as alive:
            attached = gradient.attach(affine, affine.equilibrium())
            count = alive()
            attached.sum().backward()
        return count

    one, unrolled = (
        saved(pg.NeumannPhantomGradient(1, 1.0)),
        saved(pg.UnrolledPhantomGradient(1, 1.0)),
    )
    for steps in (5, 40):
        assert saved(pg.NeumannPhantomGradient(steps, 0.5)) == one
        assert saved(pg.ImplicitGradient(solver=pg.FixedPoint(max_evaluations=steps))) == one
        assert saved(pg.UnrolledPhantomGradient(steps, 1.0)) >= steps * unrolled


@pytest.mark.parametrize("damping", [0.6, 1.0])
@pytest.mark.parametrize("steps", [1, 4, 11])
@pytest.mark.parametrize("search", [True, False], ids=["FixedPoint", "Steps"])
def test_bptt_equals_autograd_through_an_explicit_loop(damping, steps, search):
    cell, v = TanhCell(), torch.randn(3, 4)
    x, z0 = torch.randn(2, 3, 4).requires_grad_()
    search_of = pg.FixedPoint(max_evaluations=steps + 1, tol=0, damping=damping)
    solver = search_of if search else pg.Steps(steps, damping)
    z, _ = pg.DEQ(cell, solver, pg.BackpropThroughSolver())(x, z0=z0)
    by_hand = z0
    for _ in range(steps):
        by_hand = damping * cell(by_hand, x) + (1 - damping) * by_hand
    wanted = [x, z0, *cell.parameters()]
    torch.testing.assert_close(z, by_hand, rtol=1e-13, atol=1e-13)
    ours = torch.autograd.grad(z, wanted, v)
    assert relative_error(ours, torch.autograd.grad(by_hand, wanted, v)) < 1e-13


def test_bptt_of_samples_that_stop_early_covers_their_own_steps():
    slopes = torch.tensor([[0.1], [0.8]])
    affine = Affine(torch.diag_embed(slopes), torch.ones(2, 1).requires_grad_())
    solution = pg.FixedPoint(tol=1e-3).solve(affine, torch.zeros(2, 1))
    assert solution.evaluations[0] < solution.evaluations[1]
    (ours,) = torch.autograd.grad(solution.z.sum(), affine.bias)
    steps = (solution.evaluations - 1).unsqueeze(1)
    expected = (1 - slopes**steps) / (1 - slopes)  # 1 + s + ... + s^(T-1)
    torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-12)


def test_bptt_stays_finite_if_another_sample_overflows():
    slope, scale = torch.tensor(0.5, requires_grad=True), torch.tensor([[1.9], [1e30]])
    solver, zeros = pg.FixedPoint(max_evaluations=200, tol=0), torch.zeros(2, 1)
    solution = solver.solve(lambda z: slope * scale * z + 1, zeros)
    alone = solver.solve(lambda z: slope * scale[:1] * z + 1, zeros[:1])
    assert not solution.converged[1]
    assert solution.z.isfinite().all()
    (ours,) = torch.autograd.grad(solution.z[0].sum(), slope)
    (expected,) = torch.autograd.grad(alone.z.sum(), slope)
    torch.testing.assert_close(ours, expected)
