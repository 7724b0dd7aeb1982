"""Theorem 2 in the synthetic setting: errors, bounds and rates."""

import numpy as np
import pytest
import torch

from phantomgrad_suite.studies import SeriesConvergence
from phantomgrad_suite.studies.synthetic import SyntheticCell
from phantomgrad_suite.studies.theorems.theorem2 import fitted_rate

CPU = torch.device("cpu")
STEPS = (1, 2, 4, 8, 16, 24, 32, 48, 64)
SMALL = {"size": 6, "lipschitz": (0.5, 0.8), "steps": STEPS}


def test_all_checks_hold_in_every_case():
    found = SeriesConvergence(**SMALL).measure(0, CPU)
    assert all(check.holds for check in found.checks), found.checks
    assert len(found.numbers["neumann"]) == 2 * 3
    assert len(found.numbers["unrolled"]) == 2 * 3 * 2
    for case in found.numbers["neumann"]:
        assert case["radius"] <= case["norm"] < 1
        assert case["looseness"] >= 1 - 1e-12


def test_linear_cell_has_its_errors_in_closed_form():
    """W is symmetric: B has the eigenvalues 1 - x + x w, and the limit 1 / (1 - w).

    Unrolling is the series from any start; by u the Jacobian has the additional factor W.
    """
    study = SeriesConvergence(**{**SMALL, "lipschitz": (0.8,)}, nonlinearity="linear")
    found = study.measure(0, CPU).numbers
    weight = SyntheticCell(6, 0.8, "linear", torch.Generator().manual_seed(0)).weight
    w = np.linalg.eigvalsh(weight.numpy())
    for case in found["neumann"]:
        b = 1 - case["damping"] * (1 - w)
        errors = [np.abs(b**k / (1 - w)).max() * np.abs(1 - w).min() for k in STEPS]
        assert case["error"] == pytest.approx(errors, rel=1e-5, abs=1e-14)
        assert case["norm"] == pytest.approx(np.abs(b).max())
        assert case["radius"] == pytest.approx(np.abs(b).max())
        zero, rough = (c for c in found["unrolled"] if c["damping"] == case["damping"])
        assert zero["error"] == pytest.approx(rough["error"], abs=1e-14)


def test_rate_is_fitted_above_rounding():
    """The last errors are rounding; the first ones belong to another mode."""
    steps = list(range(1, 60))
    errors = [0.5**k + 100 * 0.1**k if 0.5**k > 1e-12 else 3e-16 for k in steps]
    assert fitted_rate(steps, errors) == pytest.approx(0.5, rel=1e-9)
    assert np.isnan(fitted_rate([1, 2, 3], [1e-15, 1e-15, 1e-16]))
