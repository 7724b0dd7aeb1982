"""Figure 1 against dense matrices."""

import math
from itertools import product

import pytest
import torch
from problems import exact_gradient, newton_equilibrium

from phantomgrad_suite.studies import Precision
from phantomgrad_suite.studies.figure1 import conclusions, distribution
from phantomgrad_suite.studies.synthetic import SyntheticCell

CPU = torch.device("cpu")
# Solved to rounding, so that closed forms at the equilibrium are those of what is measured.
TIGHT = {"iterations": 500, "tol": 1e-13, "broyden_iterations": 40}
TINY = {"size": 8, "rows": 2, "samples": 7, "batch": 3, "steps": (1, 2, 5)}


def cosine(a, b):
    return torch.cosine_similarity(a, b, dim=-1)


def dense_gradients(study):
    """The exact gradient and those of each number of steps and damping, by dense matrices."""
    generator = torch.Generator().manual_seed(0)
    cell = SyntheticCell(study.size, study.lipschitz, study.nonlinearity, generator)
    pairs = torch.randn(study.samples, 2, study.rows, study.size, generator=generator)
    u, y = pairs[:, 0].flatten(0, 1).requires_grad_(), pairs[:, 1].flatten(0, 1)
    h = newton_equilibrium(lambda h: cell(h, u), torch.zeros_like(u))
    v = 2 * (h - y) / (study.rows * study.size)
    found = {
        series: exact_gradient(lambda h: cell(h, u), h, v, [u], series)[0]
        for series in (None, *product(study.steps, study.dampings))
    }
    shape = (study.samples, study.rows, study.size)
    return {series: gradient.view(shape) for series, gradient in found.items()}


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu", "linear"])
def test_recorded_means_are_those_of_dense_matrices(nonlinearity):
    """Cosines over states and rows, and norm ratios; the smaller last batch counts by its size.

    The conclusions of the paper hold at any size, with a kink in F or without.
    """
    study = Precision(nonlinearity=nonlinearity, **TINY, **TIGHT)
    findings, dense = study.measure(0, CPU), dense_gradients(study)
    numbers, exact = findings.numbers, dense[None]
    settings = [(e["form"], e["steps"], e["damping"]) for e in numbers["estimates"]]
    assert settings == list(product(("NPG", "UPG"), study.steps, study.dampings))
    for found in numbers["estimates"]:
        estimate = dense[found["steps"], found["damping"]]
        expected = {
            "states": cosine(estimate.flatten(1), exact.flatten(1)),
            "rows": cosine(estimate, exact),
            "norm_ratio": estimate.flatten(1).norm(dim=1) / exact.flatten(1).norm(dim=1),
        }
        for quantity, values in expected.items():
            assert found[quantity]["mean"] == pytest.approx(float(values.mean()), rel=1e-7)
    assert {(e["states"]["n"], e["rows"]["n"]) for e in numbers["estimates"]} == {(7, 14)}
    assert numbers["exact"]["agreement"]["n"] == 7
    assert numbers["exact"]["agreement"]["percentiles"][0] == pytest.approx(1)
    assert len(findings.checks) == 4
    assert all(check.holds for check in findings.checks if "relative error" not in check.claim)


def test_conclusions_fail_where_they_should():
    """The cosine falls with k or with a larger λ; a single setting has no conclusions."""
    good = {("UPG", 1, 0.5): 0.4, ("UPG", 1, 1.0): 0.4, ("UPG", 2, 0.5): 0.5, ("UPG", 2, 1.0): 0.6}
    assert [c.value for c in conclusions(good)] == pytest.approx([0.1, 0.1])
    bad = conclusions({**good, ("UPG", 2, 1.0): 0.3})
    assert [c.value for c in bad] == pytest.approx([-0.1, -0.2])
    assert [c.holds for c in (*conclusions(good), *bad)] == [True, True, False, False]
    assert conclusions({("NPG", 1, 0.5): 0.4}) == []


def test_percentiles_are_the_nearest_entries():
    """The entries may be in any order; results have eight digits, and sums are in float64."""
    found = distribution(torch.randperm(101))
    assert found["percentiles"] == [float(i) for i in range(101)]
    assert (found["n"], found["mean"]) == (101, 50.0)
    assert found["std"] == pytest.approx(math.sqrt((101**2 - 1) / 12), rel=1e-7)
    found = distribution(torch.tensor([7.0, -1.0, 1 / 3]))["percentiles"]
    assert (found[:25], found[50], found[100]) == ([-1.0] * 25, 0.33333333, 7.0)
    # The sum of 2^24 and 1 is not a float32.
    assert distribution(torch.tensor([2.0**24, 1.0], dtype=torch.float32))["mean"] == 2**23 + 0.5
