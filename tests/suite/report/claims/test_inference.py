"""Tests and their power against closed forms, scipy and simulation; the five verdicts, Holm."""

import math

import numpy as np
import pytest
from scipy import stats

from phantomgrad_suite.report.claims.inference import (
    Difference,
    Outcome,
    Verdict,
    corrected,
    decide,
    equivalent,
    fails_more,
    greater,
    not_worse,
    varies_more,
)

LEVEL = 0.05
DRAWS = 40_000
SAMPLES = [
    [mean + float(x) for x in np.random.default_rng(n).normal(0, spread, n)]
    for mean in (-3, -0.5, 0, 0.5, 3)
    for spread in (0.1, 1)
    for n in (2, 3, 9)
]


def simulated(n, mean, spread):
    """Return means and standard errors of many samples of ``n`` normal values."""
    values = np.random.default_rng(0).normal(mean, spread, (DRAWS, n))
    return values.mean(axis=1), values.std(axis=1, ddof=1) / math.sqrt(n)


def test_over_folds_the_error_has_the_correction_of_nadeau_and_bengio():
    values = [float(i) for i in range(10)]  # a variance of 55 / 6
    plain, corrected = Difference.of(values), Difference.of(values, over_folds=True)
    assert plain.error == pytest.approx((55 / 6 / 10) ** 0.5)
    assert corrected.error == pytest.approx((55 / 6 * (1 / 10 + 1 / 9)) ** 0.5)


@pytest.mark.parametrize("values", SAMPLES)
def test_tests_of_differences_are_those_of_scipy_and_its_intervals(values):
    d = Difference.of(values)
    (low, high), (first, last) = d.interval(0.9), d.interval(0.95)
    assert (first, last) == pytest.approx((*stats.ttest_1samp(values, 0).confidence_interval(),))
    found = greater(d, 1.0, LEVEL)
    assert found.p == pytest.approx(stats.ttest_1samp(values, 0, alternative="greater").pvalue)
    assert found.against == pytest.approx(stats.ttest_1samp(values, 0, alternative="less").pvalue)
    assert found.towards == (sum(values) > 0)
    found = not_worse(d, 1.0, LEVEL)
    assert found.p == pytest.approx(stats.ttest_1samp(values, -1, alternative="greater").pvalue)
    assert (found.against < LEVEL, found.towards) == (last < -1, d.mean > -1)
    found = equivalent(d, 1.0, LEVEL)
    assert (found.p < LEVEL) == (low > -1 and high < 1)
    assert (found.against < LEVEL) == (first > 1 or last < -1)
    assert found.towards == (abs(d.mean) < 1)


@pytest.mark.parametrize("n", [2, 5, 10])
@pytest.mark.parametrize("effect", [0.5, 1.5])
def test_power_of_a_t_test_is_how_often_it_succeeds(n, effect):
    d = Difference(0.0, 1 / math.sqrt(n), n)  # a standard deviation of 1
    means, errors = simulated(n, effect, 1)
    succeeded = (means / errors > stats.t.isf(LEVEL, n - 1)).mean()
    assert greater(d, effect, LEVEL).power == pytest.approx(succeeded, abs=0.01)
    assert not_worse(d, effect, LEVEL).power == pytest.approx(succeeded, abs=0.01)


@pytest.mark.parametrize(("n", "margin"), [(2, 1.0), (3, 4.0), (5, 1.0), (5, 1.5), (10, 1.0)])
def test_power_of_equivalence_is_how_often_both_tests_succeed(n, margin):
    d = Difference(0.3, 1 / math.sqrt(n), n)
    means, errors = simulated(n, 0, 1)
    succeeded = (np.abs(means) + stats.t.isf(LEVEL, n - 1) * errors < margin).mean()
    assert equivalent(d, margin, LEVEL).power == pytest.approx(succeeded, abs=0.01)


@pytest.mark.parametrize("values", [[], [5.0], [math.nan, 1.0, 2.0], [2.0, 2.0]])
def test_without_a_spread_nothing_is_shown(values):
    d = Difference.of(values)
    for test in (greater, not_worse, equivalent):
        found = test(d, 1.0, LEVEL)
        assert (found.p, found.against) == (1.0, 1.0)
        assert math.isnan(found.power)


def test_fisher_by_hand():
    always, never = [True] * 5, [False] * 5
    found = fails_more(always, never, 1.0, LEVEL)
    assert found == (pytest.approx(1 / math.comb(10, 5)), 1.0, True, pytest.approx(1))
    assert fails_more(never, always, 1.0, LEVEL)[:3] == (1.0, pytest.approx(1 / 252), False)
    some = fails_more([True, True, False], [False] * 3, 0.5, LEVEL)  # two of six: 3 of 15 tables
    assert some[:3] == (pytest.approx(3 / 15), 1.0, True)
    # Of five runs, 4 (p = 6 / 252) or 5 must fail; 3 have p = 21 / 252.
    half = fails_more(always, never, 0.5, LEVEL)
    assert half.power == pytest.approx(6 / 32)


def test_variances_are_compared_by_the_f_test():
    a, b = [0.0, 2.0, 4.0], [0.0, 1.0, 2.0]  # variances of 4 and 1: P(F > 4) = 1 / (1 + 4)
    found = varies_more(a, b, 3.0, LEVEL)
    assert found[:3] == (pytest.approx(1 / 5), pytest.approx(4 / 5), True)
    # The critical value is 19: P(F > 19 / 9) = 1 / (1 + 19 / 9).
    assert varies_more(b, a, 3.0, LEVEL).power == pytest.approx(9 / 28)


HOLDS, TOWARDS, AGAINST, CONTRADICTED, _ = Verdict


@pytest.mark.parametrize(
    ("test", "verdicts"),
    [
        (greater, [HOLDS, HOLDS, TOWARDS, AGAINST, CONTRADICTED, CONTRADICTED]),
        (not_worse, [HOLDS, HOLDS, TOWARDS, TOWARDS, HOLDS, CONTRADICTED]),
        (equivalent, [CONTRADICTED, HOLDS, TOWARDS, TOWARDS, HOLDS, CONTRADICTED]),
    ],
)
def test_each_test_reaches_its_verdicts(test, verdicts):
    wide = [-2.0, 0.0, 2.3]
    samples = [
        *([2.0, 2.1, 2.2], [0.1, 0.11, 0.12], wide),
        *([-value for value in wide], [-0.1, -0.11, -0.12], [-2.0, -2.1, -2.2]),
    ]
    outcomes = [test(Difference.of(values), 1.0, LEVEL) for values in samples]
    assert [decide(outcome, LEVEL) for outcome in outcomes] == verdicts


def test_the_level_is_what_is_left_to_spend():
    outcome = greater(Difference.of([1.0, 2.0, 3.0]), 1.0, LEVEL)  # p = 0.037
    assert (decide(outcome, 0.05), decide(outcome, 0.025)) == (HOLDS, TOWARDS)


def test_a_family_corrects_both_sides_by_holm_and_counts_what_is_missing():
    outcomes = [Outcome(p, 1 - p, True) for p in (0.01, 0.04, 0.03, 0.9)]
    assert [o.p for o in corrected(outcomes)] == pytest.approx([0.04, 0.09, 0.09, 0.9])
    first, second, third = corrected([Outcome(0.02, 0.98, True), Outcome(0.99, 0.01, False), None])
    assert first[:2] == (pytest.approx(0.06), 1.0)
    assert second[:2] == (1.0, pytest.approx(0.03))
    assert (third, corrected([])) == (None, [])


@pytest.mark.parametrize("p", [0.001, 0.02, 0.5])
def test_what_holds_before_a_test_is_made_holds_afterwards(p):
    other = Outcome(0.015, 0.9, True)
    before, after = corrected([other, None])[0], corrected([other, Outcome(p, 1 - p, True)])[0]
    assert after.p <= before.p == pytest.approx(0.03)
