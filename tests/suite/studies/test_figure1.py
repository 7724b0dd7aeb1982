"""Figure 1 against dense matrices and against a script of the peer."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from problems import dense_jacobian, newton_equilibrium
from torch import Tensor

from phantomgrad.models import SyntheticCell
from phantomgrad_suite.bench import peer
from phantomgrad_suite.bench.figure1 import script
from phantomgrad_suite.studies import Precision
from phantomgrad_suite.studies.figure1 import conclusions

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


def means(numbers: dict[str, Any], quantity: str = "states") -> dict[Any, float]:
    return {
        (e["form"], e["steps"], e["damping"]): e[quantity]["mean"] for e in numbers["estimates"]
    }


def cosine(a: Tensor, b: Tensor) -> Tensor:
    return torch.cosine_similarity(a, b, dim=-1)


# Against dense matrices -----------------------------------------------------------------------


def dense_gradients(study: Precision) -> dict[Any, Tensor]:
    """``J^T (I - J^T)^-1 v`` and ``lambda J^T (I + B + ... + B^(k-1)) v``, by dense matrices."""
    cell, u, y = problem(study)
    inputs = u.flatten(0, 1)
    h = newton_equilibrium(lambda h: cell(h, inputs), torch.zeros_like(inputs))
    v = (2 * (h - y.flatten(0, 1)) / (study.rows * study.size)).unsqueeze(2)
    transposed = dense_jacobian(lambda h: cell(h, inputs), h).mT  # by u it is the same
    eye = torch.eye(study.size)
    sums = {"exact": torch.linalg.solve(eye - transposed, v)}
    for damping in study.dampings:
        b = damping * transposed + (1 - damping) * eye
        for k in study.steps:
            terms = [torch.linalg.matrix_power(b, t) @ v for t in range(k)]
            sums[k, damping] = damping * torch.stack(terms).sum(dim=0)
    return {name: (transposed @ total).view_as(u) for name, total in sums.items()}


@pytest.mark.parametrize("nonlinearity", NONLINEARITIES)
def test_gradients_are_those_of_dense_matrices(nonlinearity: Any) -> None:
    """The exact one twice, and NPG and UPG, which are equal at an equilibrium."""
    study = Precision(nonlinearity=nonlinearity, **{**TINY, "samples": 3}, **TIGHT)
    ours, dense = dict(study.gradients(*problem(study))), dense_gradients(study)
    for name, gradient in ours.items():
        if name != "residual":
            key = "exact" if isinstance(name, str) else name[1:]
            torch.testing.assert_close(gradient, dense[key], rtol=1e-8, atol=1e-11)


def test_recorded_means_are_those_of_dense_matrices() -> None:
    """Cosines over states and rows, and norm ratios; the smaller last batch counts by its size."""
    study = Precision(nonlinearity="linear", **TINY, **TIGHT)
    numbers, dense = study.measure(0, CPU).numbers, dense_gradients(study)
    exact = dense["exact"]
    for form, k, damping in product(("NPG", "UPG"), study.steps, study.dampings):
        estimate = dense[k, damping]
        expected = {
            "states": cosine(estimate.flatten(1), exact.flatten(1)),
            "rows": cosine(estimate, exact),
            "norm_ratio": estimate.flatten(1).norm(dim=1) / exact.flatten(1).norm(dim=1),
        }
        for quantity, values in expected.items():
            ours = means(numbers, quantity)[form, k, damping]
            assert ours == pytest.approx(float(values.mean()), rel=1e-7)
    counts = {(e["states"]["n"], e["rows"]["n"]) for e in numbers["estimates"]}
    assert counts == {(7, 14)}
    assert numbers["exact"]["agreement"]["n"] == 7


# What is recorded -----------------------------------------------------------------------------


@pytest.mark.parametrize("nonlinearity", NONLINEARITIES)
def test_conclusions_of_the_paper_hold(nonlinearity: Any) -> None:
    """At any size, with a kink in F or without."""
    study = Precision(nonlinearity=nonlinearity, **{**TINY, "size": 16}, **TIGHT)
    findings = study.measure(0, CPU)
    claims = [check.claim for check in findings.checks]
    assert "smallest cosine between the two exact gradients" in claims
    assert all(check.holds for check in findings.checks if "relative error" not in check.claim)
    settings = [(e["form"], e["steps"], e["damping"]) for e in findings.numbers["estimates"]]
    assert settings == [(f, k, d) for f in ("NPG", "UPG") for k in (1, 2, 5) for d in (0.5, 1.0)]


def test_too_few_iterations_fail_a_check() -> None:
    """The relative error of the last iterate is recorded."""
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
    """With a fall with k or a loss by a larger λ; a single setting has no conclusions."""
    good = {("UPG", 1, 0.5): 0.4, ("UPG", 1, 1.0): 0.4, ("UPG", 2, 0.5): 0.5, ("UPG", 2, 1.0): 0.6}
    assert [c.value for c in conclusions(good)] == pytest.approx([0.1, 0.1])
    bad = conclusions({**good, ("UPG", 2, 1.0): 0.3})
    assert [c.value for c in bad] == pytest.approx([-0.1, -0.2])
    assert [c.holds for c in (*conclusions(good), *bad)] == [True, True, False, False]
    assert conclusions({("NPG", 1, 0.5): 0.4}) == []


@pytest.mark.parametrize("batch", [1, 100])
def test_batch_changes_nothing_but_rounding(batch: int) -> None:
    """The draws of a pair do not depend on the batch it is in."""
    first = Precision(**TINY).measure(0, CPU).numbers
    other = Precision(**{**TINY, "batch": batch}).measure(0, CPU).numbers
    for quantity in ("states", "rows", "norm_ratio"):
        assert means(other, quantity) == pytest.approx(means(first, quantity), rel=1e-7)
    assert other["exact"]["residual"]["n"] == first["exact"]["residual"]["n"]


# The peer -------------------------------------------------------------------------------------


@pytest.mark.skipif(
    peer.version() is None, reason="torchdeq is not installed: pip install -e '.[bench]'"
)
@pytest.mark.parametrize("nonlinearity", NONLINEARITIES)
def test_script_of_the_peer_finds_the_same_means(nonlinearity: Any) -> None:
    """So the benchmark compares times of the same figure."""
    study = Precision(nonlinearity=nonlinearity, **TINY, iterations=200, tol=1e-8)
    findings, theirs = study.measure(0, CPU), script(study, 0, CPU)
    agreement = theirs.pop("implicit")
    assert findings.numbers["exact"]["agreement"]["mean"] == pytest.approx(agreement, abs=1e-5)
    assert means(findings.numbers) == pytest.approx(theirs, abs=1e-5)
