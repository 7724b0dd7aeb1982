"""Theorem 3: the gradients of the regression, and what the study records of SGD."""

import pytest
import torch

from phantomgrad import ImplicitGradient, NeumannPhantomGradient
from phantomgrad.solvers import FixedPoint
from phantomgrad_suite.studies import SGDConvergence
from phantomgrad_suite.studies.theorems.theorem3 import (
    sgd_checks,
)

CPU = torch.device("cpu")
SMALL = {
    "neumann": ((1, 1.0), (4, 0.5)),
    "unrolled": ((1, 0.5),),
    **{"seeds": 2, "iterations": 150, "size": 3, "data": 8, "batch": 4},
}


def regression():
    """A problem of two seeds, weights, ``(1, 2, 3, 3)``, and their equilibria."""
    study = SGDConvergence(seeds=2, data=5, size=3, noise=0.1, norm=0.7, decay=0.3)
    problem, start = study._problem(torch.Generator().manual_seed(0), CPU)
    weight = start.unsqueeze(0)
    return problem, weight, problem.equilibrium(weight, torch.zeros_like(problem.u))


def test_exact_gradient_is_that_of_the_objective():
    """It is compared with central differences of R, seed by seed."""
    problem, weight, h = regression()
    _, gradient = problem.gradients([], weight, h)
    for _ in range(3):
        e = torch.randn_like(weight)
        above, below = (
            problem.risk(w, problem.equilibrium(w, h))
            for w in (weight + 1e-5 * e, weight - 1e-5 * e)
        )
        expected = (gradient * e).sum(dim=(2, 3))
        torch.testing.assert_close(expected, (above - below) / 2e-5, rtol=1e-6, atol=1e-8)


def test_exact_estimators_give_the_exact_gradient():
    """The library's gradients are taken on the same problem; a truncated series differs."""
    problem, weight, h = regression()
    implicit = ImplicitGradient(solver=FixedPoint(max_evaluations=500, tol=1e-14))
    estimators = [implicit, NeumannPhantomGradient(300, 1.0), NeumannPhantomGradient(1, 1.0)]
    estimates, exact = problem.gradients(
        estimators, weight.repeat(4, 1, 1, 1), h.repeat(4, 1, 1, 1)
    )
    torch.testing.assert_close(estimates[:3], exact[:3], rtol=1e-9, atol=1e-11)
    assert (estimates[3] - exact[3]).abs().max() > 1e-3


def test_all_checks_hold_for_every_gradient():
    """All gradients start at the same W: first entries agree, ``eps`` is a minibatch's error."""
    found = SGDConvergence(**SMALL).measure(0, CPU)
    assert all(check.holds for check in found.checks), found.checks
    exact, *others = found.numbers["gradients"]
    assert [(e["kind"], e["steps"], e["damping"]) for e in (exact, *others)] == [
        ("exact", None, None),
        ("npg", 1, 1.0),
        ("npg", 4, 0.5),
        ("upg", 1, 0.5),
    ]
    assert {entry["square"][0] for entry in others} == {exact["square"][0]}
    assert others[2]["epsilon"]["max"][0] > others[1]["epsilon"]["max"][0] > 0
    assert exact["epsilon"] == {"max": [0.0, 0.0], "mean": [0.0, 0.0]}
    assert found.numbers["steps"][0] == 1
    assert found.numbers["steps"][-1] == 150
    for entry in found.numbers["gradients"]:
        assert entry["curve"][-1] == pytest.approx(sum(entry["level"]) / 2, rel=1e-5)
        assert len(entry["curve"]) == len(entry["square"]) == len(found.numbers["steps"])


@pytest.mark.parametrize(
    ("levels", "norm", "verdicts"),
    [
        ((1.0, 1.5, 2.0), 0.9, [True, True, True]),
        ((1.0, 0.9, 0.8), 0.9, [True, False, True]),  # falls as the error grows
        ((1.0, 3.0, 4.0), 1.1, [False, True, False]),  # above the bound, and not a contraction
    ],
)
def test_each_check_can_fail(levels, norm, verdicts):
    entries = [
        {"epsilon": {"max": [epsilon]}, "level": [level], "bound": [1.0]}
        for epsilon, level in enumerate(levels)
    ]
    assert [check.holds for check in sgd_checks(entries, norm)] == verdicts
