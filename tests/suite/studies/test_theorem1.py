"""Theorem 1: the conditions against closed forms, and what the study counts."""

import math

import numpy as np
import pytest
import torch
from problems import newton_equilibrium

from phantomgrad import NeumannPhantomGradient, UnrolledPhantomGradient, estimated_gradient
from phantomgrad_suite.studies.base import as_matrix, dense_jacobian, truncated_series
from phantomgrad_suite.studies.synthetic import SyntheticCell
from phantomgrad_suite.studies.theorems.theorem1 import (
    ascent_checks,
    ascent_outcomes,
    conditioning_checks,
)

CPU = torch.device("cpu")
SMALL = {"size": 6, "samples": 4, "steps": (1, 40), "dampings": (0.5, 1.0)}


def outcome(m, by_wanted, k, damping, v):
    return ascent_outcomes(m, by_wanted, v, truncated_series(m, damping, (k,)))[k]


def diagonal(a, c, k, damping, v=None):
    """Return the outcome for ``f(h) = a h + c theta``, whose Jacobians are diag(a) and diag(c)."""
    return outcome(np.diag(a), np.diag(c), k, damping, np.array(v or [1.0] * len(a)))


def test_diagonal_map_has_closed_forms():
    """All matrices in ``A (I - M) - G = -G B^k``, ``B = 1 - lambda + lambda a``, are diagonal."""
    a, c, k, x = [0.8, -0.5, 0.2, 0.0], [1.0, 3.0, 2.0, 4.0], 3, 0.5
    found = diagonal(a, c, k, x)
    powers = [(1 - x + x * slope) ** k for slope in a]
    assert found["left"] == pytest.approx(max(g * b for g, b in zip(c, powers, strict=True)))
    assert found["reduced_left"] == pytest.approx(max(powers))
    assert found["right"] == pytest.approx(1 / 4)
    assert found["reduced_right"] == pytest.approx(1 / 16)
    margin = min(g * g * (1 - b) for g, b in zip(c, powers, strict=True))
    assert found["margin"] == pytest.approx(margin)
    assert found["slack"] == pytest.approx((margin - 1 + 4 * found["left"]) / 16)
    entries = [g * (1 - b) / (1 - slope) for g, b, slope in zip(c, powers, a, strict=True)]
    assert found["condition"] == pytest.approx(max(entries) / min(entries))


def test_singular_matrix_has_no_condition_number():
    assert diagonal([0.5, 0.2], [1.0, 0.0], 3, 1.0)["condition"] == math.inf


def test_descent_direction_is_found():
    """For a = -1.5 the series without damping has the sum 1 - 1.5 < 0 after two terms."""
    a, c = [-1.5, 0.1, 0.1], [1.0, 1.0, 1.0]
    found = diagonal(a, c, 2, 1.0, [1.0, 0.0, 0.0])
    assert not found["holds"]
    assert not found["every"]
    assert not found["ascends"]
    assert found["margin"] == pytest.approx(1 - 1.5**2)
    assert found["cosine"] == pytest.approx(-1)
    assert diagonal(a, c, 2, 1.0, [0.0, 1.0, 0.0])["ascends"]
    assert diagonal(a, c, 9, 0.5)["holds"]  # damping makes it a contraction


@pytest.mark.parametrize("estimator", [NeumannPhantomGradient, UnrolledPhantomGradient])
def test_matrices_are_those_of_the_estimators(estimator):
    """``A v`` is the gradient of the library, for matrices that are not symmetric."""
    cell, k = SyntheticCell(4, 0.9), 6
    cell.weight.copy_(0.3 * torch.randn(4, 4))
    u, v = torch.randn(2, 1, 4)
    u.requires_grad_()
    h = newton_equilibrium(lambda h: cell(h, u), torch.zeros(1, 4))
    m = as_matrix(dense_jacobian(cell, h, u.detach())[0])
    (ours,) = estimated_gradient(lambda h: cell(h, u), h, v, estimator(k, 0.7), [u])
    product = m @ truncated_series(m, 0.7, (k,))[k] @ v[0].numpy()
    np.testing.assert_allclose(product, ours[0].numpy(), rtol=1e-9)
    found = outcome(m, m, k, 0.7, np.ones(4))
    assert found["slack"] >= -1e-12
    assert found["left"] <= np.linalg.norm(m, 2) * found["reduced_left"] + 1e-12


@pytest.mark.parametrize(
    ("changes", "verdicts"),
    [
        ({}, [True, True, True, True]),
        ({"every": False, "slack": -0.5}, [True, False, True, False]),
        ({"ascends": False}, [True, False, True, True]),
        ({"holds": False}, [False, True, False, True]),
    ],
)
def test_each_check_can_fail(changes, verdicts):
    good = {"holds": True, "reduced": True, "every": True, "ascends": True, "slack": 0.5}
    assert [check.holds for check in ascent_checks([{**good, **changes}])] == verdicts


@pytest.mark.parametrize(
    ("condition", "lipschitz", "verdicts"),
    [
        ({(1, 0.5): 2, (5, 0.5): 3, (1, 1.0): 2, (5, 1.0): 4}, 0.9, [True, True]),
        ({(1, 0.5): 2, (5, 0.5): 1, (1, 1.0): 2, (5, 1.0): 4}, 0.9, [False, True]),
        ({(1, 0.5): 2, (5, 0.5): 5, (1, 1.0): 2, (5, 1.0): 4}, 0.9, [True, False]),
        ({(1, 0.5): 2, (5, 0.5): 3}, 0.9, [True]),
        ({(1, 0.5): 2, (5, 0.5): 1}, 2.0, []),  # not a contraction
        ({(1, 0.5): math.inf, (5, 0.5): math.inf}, 0.9, []),  # A is singular
    ],
)
def test_conditioning_is_compared_by_steps_and_by_damping(condition, lipschitz, verdicts):
    cases = [
        {
            "lipschitz": lipschitz,
            "wanted": "input",
            "steps": k,
            "damping": damping,
            "condition": value,
        }
        for (k, damping), value in condition.items()
    ]
    assert [check.holds for check in conditioning_checks(cases)] == verdicts
