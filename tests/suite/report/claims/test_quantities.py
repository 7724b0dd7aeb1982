"""Quantities of claims, by hand."""

import math
from dataclasses import replace

import pytest
from report.conftest import record

from phantomgrad_suite.report.claims.quantities import QUANTITIES, higher_is_better, is_logarithm

CONFIG = {
    "label": {"reduced": []},
    "gradient": {"_target_": "phantomgrad.ImplicitGradient"},
    "task": {},
    "model": {},
    "solver": {"_target_": "phantomgrad.Broyden"},
}


def measured(values=(0.5,), **curves):
    """Return a record with the curves of a measured run, of ten steps an epoch."""
    names = {
        "step": "precision/step",
        "cosine": "precision/upg_k5_d0.5/cosine",
        "radius": "precision/spectral_radius/F",
        "damped": "precision/spectral_radius/F_damped",
        "to_npg": "precision/upg_k5_d0.5/to_npg_k5_d0.5",
        "loss": "train/loss",
        "f": "solver/evaluations",
        "perplexity": "test/perplexity",
        "without": "test/perplexity_without",
        "exact": "test/exact_accuracy",
        "exact_at_64": "test/exact_accuracy_at_64",
    }
    found = {names[name]: curve for name, curve in curves.items()}
    weights = {"last": {"epoch": len(values), "step": 10 * len(values)}}
    found["test/accuracy"] = list(values)
    return record("t/a", "seed0", list(values), curves=found, config=CONFIG, weights=weights)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("last", 50.0),
        ("best", 50.0),
        ("train_loss_last", 25.0),
        ("cosine_min", 0.7),
        ("cosine_slope", -0.2),  # 0.9 - 0.2 t, with t from 0 to 1
        ("radius_last", 2.5),
        ("radius_above_1", 1.5),
        ("damped_radius_above_1", -0.1),
        ("nearing_npg", 0.75),
    ],
)
def test_quantities_of_a_run(name, value):
    cosines = {"step": [0, 50, 200], "cosine": [0.9, 0.85, 0.7], "radius": [1.0, 3.0, 2.5]}
    other = {"damped": [1.2, 1.1, 0.9], "to_npg": [0.2, 0.99, 0.95]}
    run = measured(**cosines, **other, loss=[0.5, 0.25])
    assert QUANTITIES[name].of(run, run) == pytest.approx(value)


def test_quantities_of_other_evaluations():
    """Of the last epoch, whatever earlier ones have."""
    run = measured(
        perplexity=[9, 5.0], without=[9, 6.0], exact=[None, 0.9], exact_at_64=[None, 0.7]
    )
    assert QUANTITIES["without_solver"].of(run, run) == pytest.approx(100 * math.log(1.2))
    assert QUANTITIES["gain_of_segments"].of(run, run) == pytest.approx(-20.0)


def test_at_equal_evaluations_the_last_evaluated_epoch_counts():
    """The dearer run is cut. A step takes the evaluations of its solve and two more."""
    cheap = measured([None, 0.5, None, 0.6], f=[6, 6, 6, 6])  # 80 an epoch
    dear = measured([None, 0.2, None, 0.3], f=[7.5] * 4)  # 95 an epoch: three in 320
    of = QUANTITIES["at_equal_evaluations"].of
    assert (of(dear, cheap), of(cheap, dear)) == pytest.approx((20.0, 60.0))
    assert math.isnan(of(measured([None, 0.2], f=[20, 20]), measured([0.5], f=[6])))


def test_what_more_segments_lose_is_worse_for_accuracies_and_perplexities():
    """In points, and in 100 logarithms; two segments of training are four with twice as many."""
    run = measured([0.2, 0.6])
    curves = {"test/accuracy_at_4": [0.1, 0.5], "test/accuracy_at_8": [0.1, 0.7]}
    run = replace(run, config={**CONFIG, "task": {"segments": 2}}, curves=run.curves | curves)
    lost = [QUANTITIES[f"lost_at_{n}x"] for n in (2, 4)]
    assert [quantity.of(run, run) for quantity in lost] == pytest.approx([10, -10])
    curves = {"test/perplexity_at_2": [20.0], "test/perplexity_at_4": [5.0]}
    text = record("t/a", "seed0", [10.0], curves=curves, config=CONFIG)
    result = replace(text.result, metric="perplexity", mode="min")
    text = replace(text, result=result)
    assert [q.of(text, text) for q in lost] == pytest.approx(
        [100 * math.log(2), -100 * math.log(2)]
    )
    assert not any(higher_is_better(text, quantity) for quantity in lost)
    assert is_logarithm(text, lost[0])
    assert not is_logarithm(run, lost[0])
