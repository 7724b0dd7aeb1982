"""Adaptive damping: its value, its effect and its state."""

import copy
import pickle

import pytest
import torch
from methods import DroppedCell
from problems import CoupledCell, TanhCell, dense_jacobian, exact_gradient, relative_error
from torch import nn
from torch.utils.checkpoint import checkpoint

import phantomgrad as pg
from phantomgrad.models import GraphClassifier

SOLVER = pg.Broyden(max_evaluations=60, tol=1e-13)
both_phantoms = pytest.mark.parametrize(
    "kind", [pg.UnrolledPhantomGradient, pg.NeumannPhantomGradient]
)


def adaptive(**settings):
    return pg.AdaptiveDamping(**{"every": 1, "iterations": 200, "momentum": 0.0, **settings})


def damping_of(deq):
    assert isinstance(deq.gradient_state, pg.AdaptiveDamping)
    return deq.gradient_state


class LinearCell(nn.Module):
    """``W z + x`` with a symmetric W of given eigenvalues."""

    def __init__(self, *eigenvalues):
        super().__init__()
        q = torch.linalg.qr(torch.randn(len(eigenvalues), len(eigenvalues))).Q
        self.weight = nn.Parameter(q @ torch.diag(torch.tensor(eigenvalues)) @ q.mT)

    def forward(self, z, x):
        return z @ self.weight.mT + x


def radius_two(kind, steps, damping):
    torch.manual_seed(5)
    return pg.DEQ(LinearCell(-2.0, 0.5, -0.3, 0.1), SOLVER, kind(steps, damping))


@both_phantoms
def test_with_a_radius_of_two_the_series_converges(kind):
    """With ``lambda = 1/2`` the error vanishes for large k, with 1 it grows."""
    x, v = torch.randn(3, 4), torch.randn(3, 4)
    errors = [[], []]
    for damping, found in zip((1.0, adaptive()), errors, strict=True):
        for steps in (1, 5, 20, 100):
            deq = radius_two(kind, steps, damping)
            z, _ = deq(x)
            ours = torch.autograd.grad(z, deq.cell.weight, v)
            f, _ = deq.close_over((x,), z)
            found.append(relative_error(ours, exact_gradient(f, z.detach(), v, [deq.cell.weight])))
    fixed, followed = errors
    assert damping_of(deq).value == pytest.approx(0.5, abs=1e-6)
    assert followed == sorted(followed, reverse=True)
    assert followed[-1] < 1e-9
    assert fixed == sorted(fixed)
    assert fixed[-1] > 1e6


@both_phantoms
def test_a_contraction_is_not_damped(kind):
    """Here ``lambda = min(1, 1 / rho)`` is 1, and the estimate is that with 1, bit for bit."""
    x = torch.randn(3, 4)
    gradients = []
    for damping in (1.0, adaptive()):
        deq = pg.DEQ(TanhCell(norm=0.8), SOLVER, kind(3, damping))
        z, _ = deq(x)
        gradients.append(torch.autograd.grad(z.sum(), list(deq.cell.parameters())))
    assert relative_error(*gradients) == 0
    assert 0 < damping_of(deq).radius < 0.8


def test_measurements_are_averaged_and_come_every_nth_pass():
    cell = LinearCell(-2.0, 0.3)
    damping = pg.AdaptiveDamping(every=3, iterations=60, momentum=0.75)
    deq, x = pg.DEQ(cell, SOLVER, pg.NeumannPhantomGradient(2, damping)), torch.randn(2, 2)
    radii = []
    for factor in (1.0, 1.0, 2.0, 1.0, 1.0, 1.0, 1.0):
        with torch.no_grad():
            cell.weight.mul_(factor)
        deq(x)
        radii.append(float(damping_of(deq).radius))
    averaged = 0.75 * 2 + 0.25 * 4
    expected = [2, 2, 2, averaged, averaged, averaged, 0.75 * averaged + 0.25 * 4]
    assert radii == pytest.approx(expected, rel=1e-6)


def test_a_non_finite_measurement_is_skipped():
    damping = adaptive()
    damping.observe(lambda z: z * torch.nan, torch.randn(2, 3))
    assert damping.radius.isnan()
    assert (int(damping.passes), damping.value) == (1, 1.0)
    damping.observe(lambda z: -4 * z, torch.randn(2, 3))
    damping.observe(lambda z: z * torch.inf, torch.randn(2, 3))
    assert float(damping.radius) == pytest.approx(4)


def test_the_radius_is_the_largest_of_the_batch_for_the_packed_map():
    cell, x = CoupledCell(), torch.randn(3, 4)
    with torch.no_grad():
        cell.back.weight.mul_(4)
        cell.there.weight.mul_(4)
    z0 = (torch.zeros(3, 4), torch.zeros(3, 2, 3))
    deq = pg.DEQ(cell, SOLVER, pg.NeumannPhantomGradient(2, adaptive()))
    _, solution = deq(x, z0=z0)
    f, _ = deq.close_over((x,), z0)
    dense = torch.linalg.eigvals(dense_jacobian(f, solution.z)).abs().max().item()
    assert float(damping_of(deq).radius) == pytest.approx(dense, rel=0.02)


@both_phantoms
def test_evaluation_mode_uses_the_damping_without_measuring(kind):
    deq, x = radius_two(kind, 5, adaptive()), torch.randn(3, 4)
    deq(x)
    damping = damping_of(deq)
    before = copy.deepcopy(damping.state_dict())
    with torch.no_grad():
        deq(x)
        deq.cell.weight.mul_(3)
        deq.eval()(x)
    (ours,) = torch.autograd.grad(deq(x)[0].sum(), deq.cell.weight)
    assert damping.state_dict() == before
    fixed = pg.DEQ(deq.cell, SOLVER, kind(5, damping.value))
    (expected,) = torch.autograd.grad(fixed(x)[0].sum(), deq.cell.weight)
    assert torch.equal(ours, expected)


def test_random_numbers_and_masks_of_the_run_are_not_affected():
    x, seen = torch.randn(3, 4), []
    for damping in (1.0, adaptive()):
        torch.manual_seed(3)
        deq = pg.DEQ(DroppedCell(), SOLVER, pg.NeumannPhantomGradient(5, damping))
        z, _ = deq(x)
        (grad,) = torch.autograd.grad(z.sum(), deq.cell.linear.bias)
        seen.append((z.detach(), grad, torch.get_rng_state()))
    assert all(torch.equal(a, b) for a, b in zip(*seen, strict=True))


def test_measurements_are_deterministic():
    """With few iterations they depend on the start, whose seed is the number of the pass."""
    x, runs = torch.randn(1, 4), []
    for seed in (0, 1):
        torch.manual_seed(seed)
        deq = radius_two(pg.NeumannPhantomGradient, 2, adaptive(iterations=2))
        radii = []
        for _ in range(3):
            deq(x)
            radii.append(float(damping_of(deq).radius))
        runs.append(radii)
    assert runs[0] == runs[1]
    assert len(set(runs[0])) == 3


@pytest.mark.parametrize("used", [False, True])
def test_the_state_is_saved_copied_and_pickled(used):
    deq, twin = (radius_two(pg.NeumannPhantomGradient, 5, adaptive()) for _ in range(2))
    if used:
        deq(torch.randn(3, 4))
    twin.load_state_dict(deq.state_dict(), strict=True)
    ours = damping_of(deq)
    for other in (twin, copy.deepcopy(deq), pickle.loads(pickle.dumps(deq))):
        theirs = damping_of(other)
        assert theirs is other.gradient.damping
        torch.testing.assert_close(ours.state_dict(), theirs.state_dict(), equal_nan=True)
        assert bool(ours.radius.isnan()) != used


def test_an_average_of_models_has_the_damping_of_the_model():
    """Also where the number of steps is fixed, so that evaluation takes the gradient's steps."""
    gradient = pg.UnrolledPhantomGradient(3, adaptive())
    model = pg.DEQ(LinearCell(-2.0, 0.5), pg.Steps(4), gradient)
    averaged = torch.optim.swa_utils.AveragedModel(model, use_buffers=True)
    x = torch.randn(2, 2)
    model(x)
    averaged.update_parameters(model)
    assert damping_of(model).value == pytest.approx(0.5, abs=1e-6)
    assert torch.equal(averaged.eval()(x).z, model.eval()(x).z)


def test_layers_do_not_share_it():
    """Each layer measures its own map, although they are built with one estimator."""
    gradient = pg.UnrolledPhantomGradient(3, "adaptive")
    model = GraphClassifier(3, 2, pg.FixedPoint(), gradient)
    states = {layer.deq.gradient_state for layer in model.layers}
    assert len(states) == 3
    assert gradient.state not in states
    stateless = pg.ImplicitGradient()
    assert pg.DEQ(TanhCell(), SOLVER, stateless).gradient is stateless


def test_a_layer_keeps_its_state_until_its_gradient_is_replaced():
    deq = radius_two(pg.NeumannPhantomGradient, 5, adaptive())
    deq(torch.randn(3, 4))
    before = damping_of(deq)
    deq.solver = pg.FixedPoint()
    assert damping_of(deq) is before
    deq.gradient = pg.UnrolledPhantomGradient(3, before)
    assert damping_of(deq).radius == before.radius
    deq.gradient = pg.UnrolledPhantomGradient(3, 0.5)
    assert deq.gradient_state is None
    assert set(deq.state_dict()) == {"cell.weight"}
    assert not any(isinstance(m, pg.AdaptiveDamping) for m in deq.modules())


@both_phantoms
def test_the_string_adaptive_means_the_defaults(kind):
    assert repr(kind(5, "adaptive")) == repr(kind(5, pg.AdaptiveDamping()))


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_measures_in_the_repeated_pass(reentrant):
    deq = pg.DEQ(TanhCell(), SOLVER, pg.UnrolledPhantomGradient(2, adaptive()))
    x = torch.randn(2, 4, requires_grad=True)
    checkpoint(lambda x: deq(x).z, x, use_reentrant=reentrant).sum().backward()
    assert int(damping_of(deq).passes) == (1 if reentrant else 2)
    assert x.grad.norm() > 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_processes_reduce_in_one_dtype(monkeypatch, dtype):
    """A reduction of different types would abort a distributed run."""
    seen = []
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda t, **_: seen.append(t.dtype))
    adaptive().observe(lambda z: z / 2, torch.randn(2, 3).to(dtype))
    assert seen == [torch.float32]
