"""Damping that follows the model: its value, what it is good for, and where it is kept."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import distributed_worker
import pytest
import torch
from problems import CoupledCell, TanhCell, exact_gradient, newton_equilibrium, relative_error
from torch import Tensor, nn

from phantomgrad import (
    DEQ,
    AdaptiveDamping,
    Broyden,
    GradientEstimator,
    NeumannPhantomGradient,
    UnrolledPhantomGradient,
)
from phantomgrad.damping import DampingTracker
from phantomgrad.nn import VariationalDropout

SOLVER = Broyden(max_evaluations=60, tol=1e-13)
ADAPTIVE = AdaptiveDamping(every=1, iterations=200, momentum=0.0)
PHANTOMS = [UnrolledPhantomGradient, NeumannPhantomGradient]

both_phantoms = pytest.mark.parametrize("kind", PHANTOMS)


class LinearCell(nn.Module):
    """``W z + x`` with a symmetric W of given eigenvalues."""

    def __init__(self, *eigenvalues: float) -> None:
        super().__init__()
        q = torch.linalg.qr(torch.randn(len(eigenvalues), len(eigenvalues))).Q
        self.weight = nn.Parameter(q @ torch.diag(torch.tensor(eigenvalues)) @ q.mT)

    def forward(self, z: Tensor, x: Tensor) -> Tensor:
        return z @ self.weight.mT + x


def radius_two(kind: Any, steps: int, damping: Any) -> DEQ:
    torch.manual_seed(5)
    return DEQ(LinearCell(-2.0, 0.5, -0.3, 0.1), SOLVER, kind(steps, damping))


# What it does --------------------------------------------------------------------------------


@both_phantoms
def test_a_radius_of_two_is_halved_and_the_series_converges(kind: Any) -> None:
    """With ``lambda = 1/2`` the error falls with k to nothing, with 1 it grows."""
    x, v = torch.randn(3, 4), torch.randn(3, 4)
    errors: dict[Any, list[float]] = {1.0: [], ADAPTIVE: []}
    for damping, found in errors.items():
        for steps in (1, 5, 20, 100):
            deq = radius_two(kind, steps, damping)
            z, _ = deq(x)
            ours = torch.autograd.grad(z, deq.cell.weight, v)
            f = lambda z, cell=deq.cell: cell(z, x)  # noqa: E731
            at = newton_equilibrium(f, torch.zeros(3, 4), steps=2)
            found.append(relative_error(ours, exact_gradient(f, at, v, [deq.cell.weight])))
            if damping is ADAPTIVE:
                assert deq.damping_tracker.damping == pytest.approx(0.5, abs=1e-6)
    assert errors[ADAPTIVE] == sorted(errors[ADAPTIVE], reverse=True)
    assert errors[ADAPTIVE][-1] < 1e-9
    assert errors[1.0] == sorted(errors[1.0])
    assert errors[1.0][-1] > 1e6


@both_phantoms
def test_a_contraction_is_not_damped(kind: Any) -> None:
    """``lambda = min(1, 1 / rho)``: the estimate is that with 1, bit for bit."""
    x = torch.randn(3, 4)
    gradients = []
    for damping in (1.0, ADAPTIVE):
        deq = DEQ(TanhCell(norm=0.8), SOLVER, kind(3, damping))
        z, _ = deq(x)
        gradients.append(torch.autograd.grad(z.sum(), list(deq.parameters())))
    assert relative_error(*gradients) == 0
    assert deq.damping_tracker is not None
    assert 0 < deq.damping_tracker.radius < 0.8


def test_measurements_are_averaged_and_come_every_nth_pass() -> None:
    """The first pass makes the first; then ``m old + (1 - m) new``."""
    cell = LinearCell(-2.0, 0.3)
    settings = AdaptiveDamping(every=3, iterations=60, momentum=0.75)
    deq, x = DEQ(cell, SOLVER, NeumannPhantomGradient(2, settings)), torch.randn(2, 2)
    radii = []
    for factor in (1.0, 1.0, 2.0, 1.0, 1.0, 1.0, 1.0):
        with torch.no_grad():
            cell.weight.mul_(factor)
        deq(x)
        radii.append(deq.damping_tracker.radius)  # type: ignore[union-attr]
    averaged = 0.75 * 2 + 0.25 * 4
    expected = [2, 2, 2, averaged, averaged, averaged, 0.75 * averaged + 0.25 * 4]
    assert radii == pytest.approx(expected, rel=1e-6)


def test_it_is_the_largest_radius_of_the_batch() -> None:
    class Scaled(nn.Module):
        def forward(self, z: Tensor, x: Tensor) -> Tensor:
            return -z * torch.tensor([[0.2], [3.0], [1.0]]) + x

    deq = DEQ(Scaled(), SOLVER, NeumannPhantomGradient(2, ADAPTIVE))
    deq(torch.randn(3, 2, requires_grad=True))
    assert deq.damping_tracker is not None
    assert deq.damping_tracker.damping == pytest.approx(1 / 3)


def test_a_measurement_that_is_not_finite_is_left_out() -> None:
    tracker = DampingTracker(ADAPTIVE)
    tracker.follow(lambda z: z * torch.nan, torch.randn(2, 3))
    assert (tracker.radius, tracker.passes, tracker.damping) == (None, 1, 1.0)
    tracker.follow(lambda z: -4 * z, torch.randn(2, 3))
    tracker.follow(lambda z: z * torch.inf, torch.randn(2, 3))
    assert tracker.radius == pytest.approx(4)


@both_phantoms
def test_tuple_states_and_several_inputs(kind: Any) -> None:
    """The radius is that of the packed map."""
    cell, x = CoupledCell(), torch.randn(3, 4)
    with torch.no_grad():
        cell.back.weight.mul_(4)
        cell.there.weight.mul_(4)

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = cell

        def forward(self, z: Any, x: Tensor, scale: float, extra: dict[str, Tensor]) -> Any:
            return tuple(scale * s for s in self.inner(z, x + extra["bias"]))

    deq = DEQ(Scaled(), SOLVER, kind(2, ADAPTIVE))
    z0 = (torch.zeros(3, 4), torch.zeros(3, 2, 3))
    (a, b), solution = deq(x, 3.0, {"bias": torch.ones(4)}, z0=z0)
    (a.sum() + b.sum()).backward()
    f, _, _ = deq.close_over((x, 3.0, {"bias": torch.ones(4)}), z0)
    jacobian = torch.autograd.functional.jacobian(f, solution.z)
    dense = max(torch.linalg.eigvals(jacobian[i, :, i]).abs().max().item() for i in range(3))
    assert deq.damping_tracker is not None
    assert deq.damping_tracker.radius == pytest.approx(dense, rel=0.02)


# What it leaves alone -------------------------------------------------------------------------


@both_phantoms
def test_evaluation_uses_the_damping_and_leaves_it_alone(kind: Any) -> None:
    """In evaluation mode, with and without a graph; in training mode without one too."""
    deq, x = radius_two(kind, 5, ADAPTIVE), torch.randn(3, 4)
    deq(x)
    tracker = deq.damping_tracker
    before = tracker.get_extra_state()
    with torch.no_grad():
        deq(x)
        deq.cell.weight.mul_(3)
        deq.eval()(x)
    (ours,) = torch.autograd.grad(deq(x)[0].sum(), deq.cell.weight)
    assert torch.equal(tracker.get_extra_state(), before)
    fixed = DEQ(deq.cell, SOLVER, kind(5, tracker.damping))
    (expected,) = torch.autograd.grad(fixed(x)[0].sum(), deq.cell.weight)
    assert torch.equal(ours, expected)


def test_before_training_there_is_no_damping() -> None:
    deq = radius_two(NeumannPhantomGradient, 5, ADAPTIVE).eval()
    deq(torch.randn(3, 4))
    assert deq.damping_tracker is not None
    assert (deq.damping_tracker.radius, deq.damping_tracker.damping) == (None, 1.0)


def test_the_streams_of_the_run_are_not_touched() -> None:
    """Neither the generator nor the masks: the pass has the same result with another estimator."""

    class Dropped(TanhCell):
        def __init__(self) -> None:
            super().__init__(size=6)
            self.dropout = VariationalDropout(0.5)

        def forward(self, z: Tensor, x: Tensor) -> Tensor:
            return self.dropout(super().forward(z, x))  # type: ignore[no-any-return]

    x, seen = torch.randn(3, 6), []
    for damping in (1.0, ADAPTIVE):
        torch.manual_seed(3)
        deq = DEQ(Dropped(), SOLVER, NeumannPhantomGradient(5, damping))
        z, _ = deq(x)
        (grad,) = torch.autograd.grad(z.sum(), deq.cell.linear.bias)
        seen.append((z.detach(), grad, torch.get_rng_state()))
    assert all(torch.equal(a, b) for a, b in zip(*seen, strict=True))


def test_measurements_are_deterministic() -> None:
    """Few iterations depend on the start: the same in every run, another at every pass."""
    settings = AdaptiveDamping(every=1, iterations=2, momentum=0.0)
    x, runs = torch.randn(1, 4), []
    for seed in (0, 1):
        torch.manual_seed(seed)
        deq = radius_two(NeumannPhantomGradient, 2, settings)
        runs.append([_radius_after(deq, x) for _ in range(3)])
    assert runs[0] == runs[1]
    assert len(set(runs[0])) == 3


def _radius_after(deq: DEQ, x: Tensor) -> float | None:
    deq(x)
    assert deq.damping_tracker is not None
    return deq.damping_tracker.radius


# Where it is kept -----------------------------------------------------------------------------


@both_phantoms
@pytest.mark.parametrize("seen", [False, True])
def test_it_is_saved_copied_and_pickled(kind: Any, seen: bool) -> None:
    deq = radius_two(kind, 5, ADAPTIVE)
    if seen:
        deq(torch.randn(3, 4))
    twin = radius_two(kind, 5, ADAPTIVE)
    twin.load_state_dict(deq.state_dict(), strict=True)
    for other in (twin, copy.deepcopy(deq), pickle.loads(pickle.dumps(deq))):
        ours, theirs = deq.damping_tracker, other.damping_tracker
        assert ours is not None
        assert (ours.radius, ours.passes) == (theirs.radius, theirs.passes)
        assert (ours.radius is not None) == seen
    assert deq.half().damping_tracker.damping == twin.damping_tracker.damping  # type: ignore[union-attr]


def test_a_number_adds_nothing_to_the_state() -> None:
    """So checkpoints of such models stay what they are."""
    deq = radius_two(NeumannPhantomGradient, 5, 0.5)
    assert deq.damping_tracker is None
    assert set(deq.state_dict()) == {"cell.weight"}
    assert not any(isinstance(m, DampingTracker) for m in deq.modules())


def test_an_estimator_alone_says_that_it_needs_a_number() -> None:
    for kind in PHANTOMS:
        with pytest.raises(ValueError, match=r"damping must be a number where .* without a DEQ"):
            kind(5, ADAPTIVE).attach(lambda z: z, torch.zeros(1, 1))
        assert kind(5, ADAPTIVE).damped(0.25) == kind(5, 0.25)
        assert kind(5, 0.5).damped(0.25) == kind(5, 0.5)


def test_other_estimators_have_nothing_to_follow() -> None:
    class Plain(GradientEstimator):
        def attach(self, f: Any, z_star: Tensor, report: Any = None) -> Tensor:
            return z_star

    plain = Plain()
    assert plain.adaptation is None
    assert plain.damped(0.5) is plain


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": 0}, "every must be at least 1, got 0"),
        ({"iterations": 0}, "iterations must be at least 1, got 0"),
        ({"momentum": 1.0}, r"momentum must lie in \[0, 1\), got 1.0"),
    ],
)
def test_misuse_names_the_argument(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AdaptiveDamping(**options)


def test_processes_agree_on_the_largest(tmp_path: Path) -> None:
    """Two processes, radii 2 and 3."""
    torch.multiprocessing.spawn(distributed_worker.follow, args=(str(tmp_path),), nprocs=2)
    found = [torch.load(tmp_path / f"rank{rank}.pt") for rank in (0, 1)]
    assert found == [{"radius": pytest.approx(3.0)}] * 2
