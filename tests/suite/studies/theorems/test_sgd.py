"""Theorem 3: the regression has the gradients it says, and the study measures what it says."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import Tensor

from phantomgrad import ImplicitGradient, NeumannPhantomGradient
from phantomgrad.solvers import FixedPoint
from phantomgrad_suite.studies.theorems.regression import Regression, drawn_regression
from phantomgrad_suite.studies.theorems.sgd import SGDStudy, _checks, _spread, _weighted

CPU = torch.device("cpu")
SMALL: dict[str, Any] = {
    "neumann": ((1, 1.0), (4, 0.5)),
    "unrolled": ((1, 0.5),),
    "seeds": 2,
    "iterations": 40,
    "size": 3,
    "data": 8,
    "batch": 4,
}


def regression(runs: int = 2) -> tuple[Regression, Tensor]:
    """A problem, and its equilibria at the start."""
    problem = drawn_regression(
        (runs, 5, 3), noise=0.1, norm=0.7, decay=0.3, generator=torch.Generator().manual_seed(0)
    )
    return problem, problem.equilibrium(problem.start, torch.zeros_like(problem.u))


def test_the_exact_gradient_is_that_of_the_objective() -> None:
    """Central differences of R, run by run."""
    problem, h = regression()
    gradient = problem.exact_gradient(problem.start, h)
    for _ in range(3):
        e = torch.randn_like(problem.start)
        risks = [
            problem.risk(w, problem.equilibrium(w, h))
            for w in (problem.start + 1e-5 * e, problem.start - 1e-5 * e)
        ]
        slope = (risks[0] - risks[1]) / 2e-5
        torch.testing.assert_close((gradient * e).sum(dim=(1, 2)), slope, rtol=1e-6, atol=1e-8)


def test_an_estimator_that_is_exact_gives_the_exact_gradient() -> None:
    """The suite's own gradients on the same problem; a truncated series is another one."""
    problem, h = regression()
    exact = problem.exact_gradient(problem.start, h)
    implicit = ImplicitGradient(solver=FixedPoint(max_evaluations=500, tol=1e-14))
    for estimator in (implicit, NeumannPhantomGradient(300, 1.0)):
        ours = problem.gradient(estimator, problem.start, h)
        torch.testing.assert_close(ours, exact, rtol=1e-9, atol=1e-11)
    rough = problem.gradient(NeumannPhantomGradient(1, 1.0), problem.start, h)
    assert (rough - exact).abs().max() > 1e-3


def test_minibatches_are_unbiased() -> None:
    """The mean over all minibatches of one sample is the gradient of R."""
    problem, h = regression()
    singles = []
    for i in range(5):
        index = torch.full((2, 1), i)
        singles.append(problem.batch(index).exact_gradient(problem.start, h[:, i : i + 1]))
    whole = problem.exact_gradient(problem.start, h)
    torch.testing.assert_close(torch.stack(singles).mean(dim=0), whole)


def test_all_checks_hold_and_every_number_is_there() -> None:
    found = SGDStudy(**{**SMALL, "iterations": 150}).measure(0, CPU)
    assert all(check.holds for check in found.checks), found.checks
    exact, *others = found.numbers["gradients"]
    assert [(e["kind"], e["steps"], e["damping"]) for e in (exact, *others)] == [
        ("exact", None, None),
        ("npg", 1, 1.0),
        ("npg", 4, 0.5),
        ("upg", 1, 0.5),
    ]
    assert exact["epsilon"] == {"max": [0.0, 0.0], "mean": [0.0, 0.0]}
    assert found.numbers["steps"][0] == 1
    assert found.numbers["steps"][-1] == 150
    for entry in found.numbers["gradients"]:
        assert entry["curve"][-1] == pytest.approx(sum(entry["level"]) / 2, rel=1e-5)
        assert len(entry["curve"]) == len(entry["square"]) == len(found.numbers["steps"])
    assert json.loads(json.dumps(found.numbers, allow_nan=False)) == found.numbers


def test_a_step_is_one_of_sgd() -> None:
    """All gradients start at the same W: first entries agree, ``eps`` is a minibatch's error."""
    found = SGDStudy(**SMALL).measure(3, CPU).numbers["gradients"]
    assert len({entry["square"][0] for entry in found}) == 1
    assert found[3]["epsilon"]["max"][0] > found[2]["epsilon"]["max"][0] > 0


def test_the_checks_can_fail() -> None:
    """A level that falls with the error, or one above the bound, or weights that left."""

    def entry(epsilon: float, level: float) -> dict[str, Any]:
        return {"epsilon": {"max": [epsilon]}, "level": [level], "bound": [1.0]}

    good = {"gradients": [entry(0, 1.0), entry(1, 1.5), entry(2, 2.0)], "norm": 0.9}
    assert all(check.holds for check in _checks(good))
    falling = {"gradients": [entry(0, 1.0), entry(1, 0.9), entry(2, 0.8)], "norm": 0.9}
    assert [c.holds for c in _checks(falling)] == [True, False, True]
    steep = {"gradients": [entry(0, 1.0), entry(1, 3.0), entry(2, 4.0)], "norm": 1.1}
    assert [c.holds for c in _checks(steep)] == [False, True, False]


def test_the_left_side_is_weighted_by_the_rates() -> None:
    mean = _weighted(torch.tensor([[4.0], [1.0]]), torch.tensor([[1.0], [0.5]]))
    assert mean.flatten().tolist() == pytest.approx([4.0, 3.0])


def test_curves_keep_few_places() -> None:
    assert _spread(2) == [0, 1]
    places = _spread(1000)
    assert (places[0], places[-1]) == (0, 999)
    assert len(places) <= 60


def test_weights_that_leave_the_contractions_are_said_to() -> None:
    with pytest.raises(ValueError, match="the weights must stay contractions"):
        SGDStudy(**{**SMALL, "rate": 50.0}).measure(0, CPU)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seeds": 0}, "seeds must be at least 1, got 0"),
        ({"iterations": 1}, "iterations must be at least 2, got 1"),
        ({"rate": 0.0}, "rate must be positive, got 0.0"),
        ({"decay": -1.0}, "decay must not be negative, got -1.0"),
        ({"norm": 1.0}, r"norm must lie in \(0, 1\), got 1.0"),
    ],
)
def test_misuse(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SGDStudy(**options)
