"""Warnings of solves that keep failing."""

import warnings

import pytest
import torch
from problems import Dispatched, TanhCell

import phantomgrad as pg
from phantomgrad import health


def solution(residual, converged=None):
    r = torch.tensor(residual)
    count = torch.ones(len(r), dtype=torch.long)
    found = torch.tensor([x < 1e-3 for x in residual] if converged is None else converged)
    return pg.Solution(r, r, count, count, found.bool(), ~found.bool())


LOOSE = solution([0.1, 0.2])  # nothing has converged
STUCK = solution([0.0, 0.95, 0.99])
GOOD = solution([0.0, 0.2])
ABSOLUTE = solution([1.5, 1.2, 30.0], [True, True, False])  # below a large absolute tolerance


def warned(patience, solves):
    """The numbers of the solves, from 1, at which there was a warning."""
    watch, found = pg.SolverHealth(patience=patience), []
    for number, solve in enumerate(solves, 1):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            watch(solve)
        found += [number for w in caught if w.category is pg.SolverWarning]
    return found


@pytest.mark.parametrize("bad", [LOOSE, STUCK, solution([torch.nan]), solution([torch.inf, 0.0])])
def test_consecutive_failures_are_counted(bad):
    assert warned(3, [bad, bad, GOOD, bad, bad]) == []
    assert warned(3, [bad, bad, GOOD, bad, bad, bad]) == [6]
    assert warned(3, [bad] * 7) == [3, 6]  # counted anew
    assert warned(1, [GOOD, bad, GOOD]) == [2]


@pytest.mark.parametrize("good", [GOOD, solution([0.0, 0.1, 0.99]), solution([]), ABSOLUTE])
def test_what_is_no_failure(good):
    """One converged sample is enough, unless half of the others make no progress."""
    assert warned(1, [good] * 3) == []


@pytest.mark.parametrize("solver", [pg.Steps(2), pg.FixedPoint(max_evaluations=3, tol=0)])
def test_solves_without_a_tolerance_do_not_count(solver):
    layer, watch = (
        pg.DEQ(TanhCell(), solver, pg.UnrolledPhantomGradient(1, 1.0)),
        pg.SolverHealth(patience=1),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        watch(layer(torch.randn(3, 4)).solution)


def test_an_empty_batch_neither_fails_nor_interrupts():
    assert warned(2, [LOOSE, solution([]), LOOSE]) == [3]


def test_an_accelerator_is_read_every_patience_solves(monkeypatch):
    """No run of failures is missed between two readings."""
    monkeypatch.setattr(health, "may_read", lambda device: False)
    assert warned(3, [GOOD, LOOSE, LOOSE, LOOSE, GOOD, GOOD]) == [6]
    assert warned(3, [LOOSE, LOOSE, GOOD, LOOSE, LOOSE, GOOD, LOOSE, LOOSE]) == []
    watch, seen = pg.SolverHealth(patience=4), []
    with Dispatched(lambda operation, _: seen.append(operation)):
        for _ in range(11):
            watch(GOOD)
    assert seen.count(torch.ops.aten._local_scalar_dense.default) == 2


def test_a_layer_that_cannot_converge():
    """The remedy of the warning, another solver, ends it. The layer itself says nothing."""
    torch.manual_seed(1)
    layer = pg.DEQ(
        TanhCell(norm=3.0), pg.FixedPoint(max_evaluations=9), pg.UnrolledPhantomGradient(1, 1.0)
    )
    layer.check_map = False
    x = 0.1 * torch.randn(3, 4)
    watch = pg.SolverHealth(patience=5, name="encoder.deq")
    for _ in range(4):
        watch(layer(x).solution)
    with pytest.warns(pg.SolverWarning, match="encoder.deq has failed 5 times .*spectral_radius"):
        watch(layer(x).solution)
    layer.solver = pg.Broyden(max_evaluations=60)
    for _ in range(10):
        watch(layer(x).solution)


def test_refused_settings():
    with pytest.raises(ValueError, match="patience must be at least 1, got 0"):
        pg.SolverHealth(patience=0)
    with pytest.raises(ValueError, match="residual must be positive, got nan"):
        pg.SolverHealth(residual=torch.nan)
