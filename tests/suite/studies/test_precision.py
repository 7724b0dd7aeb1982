"""Figure 1 against dense matrices, and that nothing but the seed decides its numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from problems import dense_jacobian, newton_equilibrium
from torch import Tensor

from phantomgrad.models import SyntheticCell
from phantomgrad_suite.bench import peer
from phantomgrad_suite.bench.contest import OURS, PEER
from phantomgrad_suite.bench.figure1 import figure1_case, script
from phantomgrad_suite.studies import Precision
from phantomgrad_suite.studies.clock import Clock
from phantomgrad_suite.studies.precision import _conclusions

CPU = torch.device("cpu")
# Solved to rounding, so that closed forms at the equilibrium are those of what is measured.
TIGHT: dict[str, Any] = {"iterations": 500, "tol": 1e-13, "broyden_iterations": 40}
TINY: dict[str, Any] = {"size": 8, "rows": 2, "samples": 7, "batch": 3, "steps": (1, 2, 5)}
NONLINEARITIES = ("tanh", "relu", "linear")


def problem(study: Precision) -> tuple[SyntheticCell, Tensor, Tensor]:
    """The layer and all pairs (u, y) of a study with seed 0."""
    generator = torch.Generator().manual_seed(0)
    cell = SyntheticCell(study.size, study.lipschitz, study.nonlinearity, generator)
    pairs = torch.randn(study.samples, 2, study.rows, study.size, generator=generator)
    return cell, pairs[:, 0].clone(), pairs[:, 1].clone()


def gradients(study: Precision) -> dict[Any, Tensor]:
    cell, u, y = problem(study)
    return dict(study.gradients(cell, u, y))


def means(numbers: dict[str, Any], quantity: str = "states") -> dict[Any, float]:
    return {
        (e["form"], e["steps"], e["damping"]): e[quantity]["mean"] for e in numbers["estimates"]
    }


def cosine(a: Tensor, b: Tensor) -> Tensor:
    return torch.cosine_similarity(a, b, dim=-1)


# Against dense matrices -----------------------------------------------------------------------


def linear_closed_form(study: Precision) -> dict[Any, Tensor]:
    """Of ``h = W (h + u)``: ``W (I - W)^-1 v``, and ``lambda W (I + B + ... + B^(k-1)) v``."""
    cell, u, y = problem(study)
    w, eye = cell.weight, torch.eye(study.size)
    h = u @ torch.linalg.solve(eye - w, w)  # W is symmetric
    v = 2 * (h - y) / (study.rows * study.size)
    found = {"exact": v @ torch.linalg.solve(eye - w, w)}
    for damping in study.dampings:
        b = damping * w + (1 - damping) * eye
        for k in study.steps:
            series = sum((torch.linalg.matrix_power(b, t) for t in range(k)), torch.zeros_like(w))
            found[k, damping] = damping * v @ series @ w
    return found


def test_linear_gradients_are_those_of_dense_matrices() -> None:
    """The exact one twice, and ``A_{k,lambda} v`` in both forms, equal at an equilibrium."""
    study = Precision(nonlinearity="linear", **TINY, **TIGHT)
    ours, dense = gradients(study), linear_closed_form(study)
    for name in ("exact", "implicit"):
        torch.testing.assert_close(ours[name], dense["exact"], rtol=1e-9, atol=1e-12)
    for damping in study.dampings:
        for k in study.steps:
            for form in ("NPG", "UPG"):
                torch.testing.assert_close(
                    ours[form, k, damping], dense[k, damping], rtol=1e-9, atol=1e-12
                )


def test_recorded_means_are_those_of_dense_matrices() -> None:
    """Cosines over states and rows, and norm ratios; the smaller last batch counts by its size."""
    study = Precision(nonlinearity="linear", **TINY, **TIGHT)
    numbers, dense = study.measure(0, CPU).numbers, linear_closed_form(study)
    exact = dense["exact"]
    for form in ("NPG", "UPG"):
        for k in study.steps:
            for damping in study.dampings:
                estimate = dense[k, damping]
                states = cosine(estimate.flatten(1), exact.flatten(1))
                ratio = estimate.flatten(1).norm(dim=1) / exact.flatten(1).norm(dim=1)
                expected = {
                    "states": states,
                    "rows": cosine(estimate, exact),
                    "norm_ratio": ratio,
                }
                for quantity, values in expected.items():
                    ours = means(numbers, quantity)[form, k, damping]
                    assert ours == pytest.approx(float(values.mean()), rel=1e-7)
    counts = {(e["states"]["n"], e["rows"]["n"]) for e in numbers["estimates"]}
    assert counts == {(7, 14)}
    assert numbers["exact"]["agreement"]["n"] == 7


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
def test_nonlinear_gradients_are_those_of_dense_jacobians(nonlinearity: Any) -> None:
    """At the equilibrium; for relu the kinks are not in the way of these draws."""
    study = Precision(nonlinearity=nonlinearity, **{**TINY, "samples": 3}, **TIGHT)
    cell, u, y = problem(study)
    ours = dict(study.gradients(cell, u, y))
    rows = u.detach().flatten(0, 1)
    h = newton_equilibrium(lambda h: cell(h, rows), torch.zeros_like(rows))
    v = 2 * (h - y.flatten(0, 1)) / (study.rows * study.size)
    jacobian = dense_jacobian(lambda h: cell(h, rows), h)  # by u it is the same
    eye = torch.eye(study.size)
    expected = {"exact": torch.linalg.solve(eye - jacobian.mT, v.unsqueeze(2))}
    for k, damping in ((2, 0.5), (5, 1.0)):
        b = damping * jacobian.mT + (1 - damping) * eye
        terms = [torch.linalg.matrix_power(b, t) @ v.unsqueeze(2) for t in range(k)]
        expected["NPG", k, damping] = expected["UPG", k, damping] = damping * torch.stack(
            terms
        ).sum(dim=0)
    for name, sums in expected.items():
        dense = (jacobian.mT @ sums).view_as(u)
        torch.testing.assert_close(ours[name], dense, rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("nonlinearity", NONLINEARITIES)
def test_a_single_term_has_one_direction_whatever_its_factor(nonlinearity: Any) -> None:
    numbers = Precision(nonlinearity=nonlinearity, **TINY, **TIGHT).measure(0, CPU).numbers
    for quantity, factor in (("states", 1.0), ("rows", 1.0), ("norm_ratio", 2.0)):
        found = means(numbers, quantity)
        for form in ("NPG", "UPG"):
            assert found[form, 1, 1.0] == pytest.approx(factor * found[form, 1, 0.5], rel=1e-7)


# What is recorded -----------------------------------------------------------------------------


@pytest.mark.parametrize("nonlinearity", NONLINEARITIES)
def test_the_conclusions_of_the_paper_are_put_to_the_test(nonlinearity: Any) -> None:
    """And hold, at any size, with a kink in F or without."""
    study = Precision(nonlinearity=nonlinearity, **{**TINY, "size": 16}, **TIGHT)
    findings = study.measure(0, CPU)
    claims = [check.claim for check in findings.checks]
    assert "smallest cosine between the two exact gradients" in claims
    assert all(check.holds for check in findings.checks if "relative error" not in check.claim)
    settings = [(e["form"], e["steps"], e["damping"]) for e in findings.numbers["estimates"]]
    assert settings == [(f, k, d) for f in ("NPG", "UPG") for k in (1, 2, 5) for d in (0.5, 1.0)]


def test_too_few_iterations_are_said() -> None:
    """The relative error they leave is recorded, and is that of the last iterate."""
    study = Precision(**{**TINY, "steps": (1,)}, iterations=4, tol=1e-9)
    findings = study.measure(0, CPU)
    exact = findings.numbers["exact"]
    assert exact["residual"]["percentiles"][0] > 1e-9
    (check,) = [c for c in findings.checks if c.claim == "largest relative error of h*"]
    assert not check.holds
    assert check.value == exact["residual"]["percentiles"][-1]
    longer = replace(study, iterations=12).measure(0, CPU).numbers["exact"]
    assert longer["residual"]["percentiles"][-1] < exact["residual"]["percentiles"][0]


def test_conclusions_fail_where_they_should() -> None:
    """A fall with k, a loss by a larger λ, and nothing to say of a single setting."""
    good = {("UPG", 1, 0.5): 0.4, ("UPG", 1, 1.0): 0.4, ("UPG", 2, 0.5): 0.5, ("UPG", 2, 1.0): 0.6}
    rise, gain = _conclusions(good)
    assert (rise.value, gain.value) == (pytest.approx(0.1), pytest.approx(0.1))
    assert rise.holds
    assert gain.holds
    rise, gain = _conclusions({**good, ("UPG", 2, 1.0): 0.3})
    assert (rise.value, gain.value) == (pytest.approx(-0.1), pytest.approx(-0.2))
    assert not rise.holds
    assert not gain.holds
    assert _conclusions({("NPG", 1, 0.5): 0.4}) == []


# What decides the numbers ---------------------------------------------------------------------


def test_the_seed_decides_the_numbers() -> None:
    study = Precision(**TINY)
    first = study.measure(3, CPU)
    torch.rand(5)
    assert study.measure(3, CPU) == first
    assert study.measure(4, CPU).numbers != first.numbers


@pytest.mark.parametrize("batch", [1, 4, 7, 100])
def test_the_batch_does_not(batch: int) -> None:
    """Beyond rounding: the draws of a pair do not depend on who is computed beside it."""
    first = Precision(**TINY).measure(0, CPU).numbers
    other = Precision(**{**TINY, "batch": batch}).measure(0, CPU).numbers
    for quantity in ("states", "rows", "norm_ratio"):
        assert means(other, quantity) == pytest.approx(means(first, quantity), rel=1e-7)
    assert other["exact"]["residual"]["n"] == first["exact"]["residual"]["n"]


def test_progress_is_told_batch_by_batch() -> None:
    seen: list[Any] = []

    def track(items: Any, title: str) -> Any:
        for item in items:
            seen.append((item, title))
            yield item

    Precision(**{**TINY, "steps": (1,)}).measure(0, CPU, track)
    assert seen == [(size, "batches of 3 samples") for size in (3, 3, 1)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"rows": 0}, "rows must be at least 1, got 0"),
        ({"samples": 0}, "samples must be at least 1, got 0"),
        ({"batch": 0}, "batch must be at least 1, got 0"),
        ({"iterations": 0}, "iterations must be at least 1, got 0"),
        ({"broyden_iterations": 0}, "broyden_iterations must be at least 1, got 0"),
        ({"steps": []}, "steps must hold at least 1 different values"),
        ({"steps": [3, 0]}, "steps must be at least 1, got 0"),
        ({"dampings": []}, "dampings must hold at least 1 different values"),
        ({"dampings": [0.5, 1.5]}, r"damping must lie in \(0, 1\], got 1.5"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Precision(**arguments)


# The peer -------------------------------------------------------------------------------------


needs_peer = pytest.mark.skipif(
    peer.version() is None, reason="torchdeq is not installed: pip install -e '.[bench]'"
)


@needs_peer
@pytest.mark.parametrize("nonlinearity", NONLINEARITIES)
def test_the_script_of_the_peer_finds_the_same_means(nonlinearity: Any) -> None:
    """So the benchmark compares the time of one and the same figure."""
    study = Precision(nonlinearity=nonlinearity, **TINY, iterations=200, tol=1e-8)
    findings, theirs = study.measure(0, CPU), script(study, 0, CPU)
    agreement = theirs.pop("implicit")
    assert findings.numbers["exact"]["agreement"]["mean"] == pytest.approx(agreement, abs=1e-5)
    assert means(findings.numbers) == pytest.approx(theirs, abs=1e-5)


@needs_peer
def test_the_case_has_both_sides() -> None:
    case = figure1_case(Precision(**{**TINY, "steps": (1,), "samples": 1}))
    seconds = {name: build(Clock(CPU))().seconds for name, build in case.contenders.items()}
    assert {name: list(found) for name, found in seconds.items()} == {
        OURS: ["total"],
        PEER: ["total"],
    }
