"""Theorem 1 in the synthetic setting: what the study counts."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from phantomgrad_suite.studies.conditions import Conditions, Direction
from phantomgrad_suite.studies.theorems.descent import DescentStudy, _checks

CPU = torch.device("cpu")
SMALL: dict[str, Any] = {"size": 6, "samples": 4, "steps": (1, 40), "dampings": (0.5, 1.0)}


def test_every_case_is_there_and_all_checks_hold() -> None:
    found = DescentStudy(**SMALL, lipschitz=(0.5, 2.0)).measure(0, CPU)
    cases = found.numbers["cases"]
    keys = [(c["lipschitz"], c["wanted"], c["steps"], c["damping"]) for c in cases]
    assert len(set(keys)) == len(keys) == 2 * 2 * 2 * 2
    assert all(check.holds for check in found.checks)
    assert json.loads(json.dumps(found.numbers, allow_nan=False)) == found.numbers
    for case in cases:
        assert case["reduced"] <= case["holds"] <= case["every"] <= case["ascends"] <= 1
        assert case["left"] > 0


def test_many_steps_of_a_contraction_meet_the_condition() -> None:
    found = DescentStudy(**SMALL, lipschitz=(0.5,)).measure(0, CPU)
    shares = {(c["steps"], c["wanted"], c["damping"]): c["holds"] for c in found.numbers["cases"]}
    assert shares[40, "weight", 1.0] == shares[40, "input", 1.0] == 1
    assert shares[1, "input", 1.0] == 0


def test_the_seed_decides() -> None:
    study = DescentStudy(**SMALL, lipschitz=(0.9,))
    first, again, other = (study.measure(seed, CPU).numbers for seed in (0, 0, 1))
    assert first == again != other


def test_a_linear_map_has_its_condition_number() -> None:
    """By u the matrix is W itself, whose largest singular value is L_h; B^k is known too."""
    study = DescentStudy(
        size=5, samples=1, lipschitz=(0.7,), steps=(2,), dampings=(1.0,), nonlinearity="linear"
    )
    case = next(c for c in study.measure(0, CPU).numbers["cases"] if c["wanted"] == "input")
    assert case["left"] == pytest.approx(0.7**3)
    assert case["right"] == pytest.approx(0.7 * case["reduced_right"])


def test_a_violation_would_be_seen() -> None:
    """A condition that holds without ascent, and a remark that promises too much."""
    sides = Conditions(0.1, 0.01, 1.0, 1.0, margin=-0.5, shape=(2, 2))
    wrong = _checks([(sides, Direction(-1.0, -1.0))])
    assert [check.holds for check in wrong] == [True, False, True, False]
    remark = Conditions(2.0, 0.01, 1.0, 1.0, margin=0.5, shape=(2, 2))
    assert [c.holds for c in _checks([(remark, Direction(1.0, 1.0))])] == [False, True, False, True]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": 0}, "samples must be at least 1, got 0"),
        ({"lipschitz": (30.0,), "nonlinearity": "linear"}, "half steps reach an equilibrium"),
        ({"lipschitz": (-1.0,)}, "lipschitz must be positive, got -1.0"),
    ],
)
def test_misuse(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DescentStudy(**{**SMALL, **options}).measure(0, CPU)
