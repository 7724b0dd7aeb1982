"""Quantities of claims, by hand."""

import math
from dataclasses import replace

import pytest
from report.conftest import record

from phantomgrad_suite.report.claims.quantities import QUANTITIES


def measured(**curves):
    """Return a record with the curves of a measured run."""
    names = {
        "step": "precision/step",
        "cosine": "precision/upg_k5_d0.5/cosine",
        "radius": "precision/spectral_radius/F",
        "seconds": "seconds/step_cpu",
        "f": "seconds/f_cpu",
        "test": "test/accuracy",
    }
    found = {names[name]: curve for name, curve in curves.items()}
    return record("t/a", "seed0", [0.5], curves=found, seconds={"step_cpu": 0.15})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("last", 50.0),
        ("best", 50.0),
        ("log_step_time", 100 * math.log(20)),
        ("cosine_min", 0.7),
        ("cosine_slope", -0.2),  # 0.9 - 0.2 t, with t from 0 to 1
        ("radius_last", 2.5),
    ],
)
def test_quantities_of_a_run(name, value):
    cosines = {"step": [0, 50, 200], "cosine": [0.9, 0.85, 0.7], "radius": [1.0, 3.0, 2.5]}
    # Two steps an epoch; the first one is pretraining.
    run = measured(**cosines, seconds=[0.1, 0.5, 0.3], f=[None, 0.01, 0.01])
    assert QUANTITIES[name].of(run, run) == pytest.approx(value)


def test_seconds_of_two_machines_are_not_compared():
    here, there = (replace(measured(), environment={"processor": name}) for name in "ab")
    moved = replace(here, environment={"processor": "a", "earlier": [{"processor": "b"}]})
    pairs = (here, here), (here, there), (here, moved)
    seconds, ratio = (QUANTITIES[name].can_compare for name in ("at_equal_time", "log_step_time"))
    assert [seconds(*pair) for pair in pairs] == [True, False, False]
    assert all(ratio(*pair) for pair in pairs)


def test_at_equal_time_the_slower_run_is_cut():
    slow = measured(seconds=[10.0, 10.0, 10.0], test=[0.1, 0.2, 0.3])
    fast = measured(seconds=[7.0, 7.0, 7.0], test=[0.4, 0.5, 0.6])
    of = QUANTITIES["at_equal_time"].of
    assert (of(slow, fast), of(fast, slow)) == pytest.approx((20.0, 60.0))
    assert math.isnan(of(slow, measured(seconds=[1.0], test=[0.1])))
