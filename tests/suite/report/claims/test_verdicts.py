"""Intervals, p-values and verdicts against closed forms."""

import math

import numpy as np
import pytest

from phantomgrad_suite.report.claims.verdicts import (
    LEVEL,
    TESTS,
    Comparison,
    Difference,
    Finding,
    Verdict,
    holm,
    judge,
)

SAMPLES = [
    [mean + float(x) for x in np.random.default_rng(n).normal(0, spread, n)]
    for mean in (-3, -0.5, 0, 0.5, 3)
    for spread in (0.1, 1)
    for n in (2, 3, 9)
]


def upper_tail(t):
    """Return P(T > t) for two degrees of freedom."""
    return 0.5 - t / (2 * math.sqrt(2 + t * t))


def verdict(test, values, margin=1.0, **options):
    return judge([Comparison(test, Difference.of(values), margin, **options)])[0].verdict


def test_interval_and_p_value_of_three_pairs():
    difference = Difference.of([1.0, 2.0, 3.0])
    assert difference.interval() == pytest.approx([2 - 4.302653 / 3**0.5, 2 + 4.302653 / 3**0.5])
    assert difference.p_above(0) == pytest.approx(upper_tail(2 * 3**0.5))
    assert difference.p_above(1) == pytest.approx(upper_tail(3**0.5))


def test_over_folds_the_error_has_the_correction_of_nadeau_and_bengio():
    values = [float(i) for i in range(50)]
    plain, corrected = Difference.of(values), Difference.of(values, folds=10)
    assert plain.error == pytest.approx((212.5 / 50) ** 0.5)
    assert corrected.error == pytest.approx((212.5 * (1 / 50 + 1 / 9)) ** 0.5)


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.9]) == pytest.approx([0.04, 0.09, 0.09, 0.9])
    assert holm([0.6, 0.5]) == [1.0, 1.0]
    assert holm([]) == []


def test_a_second_claim_of_a_family_raises_the_p_value():
    clear = Comparison("greater", Difference.of([1.0, 2.0, 3.0]), math.nan)  # p = 0.037
    assert judge([clear])[0] == (pytest.approx(upper_tail(2 * 3**0.5)), Verdict.HOLDS, "")
    vague = clear._replace(difference=Difference.of([-9.0, 9.0, 0.0]))
    (p, found, _), _ = judge([clear, vague])
    assert (p, found) == (pytest.approx(2 * upper_tail(2 * 3**0.5)), Verdict.UNSETTLED)


def test_equivalence_is_two_one_sided_tests():
    values = [0.1, 0.2, 0.3]  # the standard error is 0.1 / sqrt(3)
    p, found, _ = judge([Comparison("equivalent", Difference.of(values), 1.0)])[0]
    assert p == pytest.approx(upper_tail(0.8 / 0.1 * 3**0.5))
    assert found == Verdict.HOLDS
    assert verdict("equivalent", [2.0, 2.1, 2.2]) == Verdict.FAILS
    assert verdict("equivalent", [-2.0, -2.1, -2.2]) == Verdict.FAILS
    assert verdict("equivalent", [-2.0, 0.0, 2.0]) == Verdict.UNSETTLED


@pytest.mark.parametrize("values", SAMPLES)
def test_equivalence_holds_where_the_90_percent_interval_is_inside_the_margin(values):
    difference = Difference.of(values)
    reach = {2: 6.313752, 3: 2.919986, 9: 1.859548}[len(values)] * difference.error
    inside = difference.mean - reach > -1 and difference.mean + reach < 1
    assert (verdict("equivalent", values) == Verdict.HOLDS) == inside


def test_a_difference_within_the_margin_refutes_a_claim_of_one():
    none = [-0.1, 0.0, 0.12]
    assert verdict("greater", none) == verdict("less", none) == Verdict.FAILS
    assert verdict("greater", none, margin=math.nan) == Verdict.UNSETTLED
    assert verdict("greater", [0.2, 0.21, 0.22]) == Verdict.HOLDS  # small, but significant


def test_not_worse_is_about_the_side_that_is_worse():
    small, large = [0.1, 0.2, 0.3], [3.0, 3.1, 3.2]
    assert verdict("not_worse", large) == verdict("not_worse", small) == Verdict.HOLDS
    assert verdict("not_worse", [-x for x in large]) == Verdict.FAILS
    assert verdict("not_worse", large, higher_is_better=False) == Verdict.FAILS
    assert verdict("not_worse", small, higher_is_better=False) == Verdict.HOLDS
    assert verdict("not_worse", [-3.0, 0.0, 3.0]) == Verdict.UNSETTLED


@pytest.mark.parametrize(
    ("test", "values", "reason"),
    [
        ("greater", [-2.0, -2.1, -2.2], "the opposite is significant"),
        ("less", [-0.1, 0.0, 0.12], "no difference beyond the margin"),
        ("equivalent", [2.0, 2.1, 2.2], "beyond the margin"),
        ("not_worse", [-2.0, -2.1, -2.2], "beyond the margin"),
        ("greater", [2.0, 2.1, 2.2], ""),
    ],
)
def test_a_claim_that_does_not_hold_has_a_reason(test, values, reason):
    assert judge([Comparison(test, Difference.of(values), 1.0)])[0].reason == reason


@pytest.mark.parametrize("margin", [1.0, math.nan])
@pytest.mark.parametrize("values", SAMPLES)
def test_swapping_a_and_b_turns_greater_into_less(values, margin):
    swapped = Difference.of([-value for value in values])
    greater = judge([Comparison("greater", Difference.of(values), margin)])
    assert greater == judge([Comparison("less", swapped, margin)])
    if greater[0].verdict == Verdict.HOLDS:
        assert verdict("less", values, margin) == Verdict.FAILS


@pytest.mark.parametrize("values", SAMPLES)
@pytest.mark.parametrize("test", TESTS)
def test_what_holds_is_never_contradicted(test, values):
    comparison = Comparison(test, Difference.of(values), 1.0)
    p, found, _ = judge([comparison])[0]
    assert (found == Verdict.HOLDS) == (p < LEVEL)
    if found == Verdict.HOLDS:
        _, against, refuted = comparison.measures()
        assert against > LEVEL
        assert not refuted or test in ("greater", "less")


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("values", [[], [5.0], [math.nan, 1.0, 2.0]])
def test_without_an_interval_nothing_is_settled(test, values):
    assert judge([Comparison(test, Difference.of(values), 1.0)]) == [
        Finding(1.0, Verdict.UNSETTLED)
    ]


def test_equal_differences_need_no_spread():
    assert verdict("greater", [2.0, 2.0]) == Verdict.HOLDS
    assert verdict("greater", [0.0, 0.0]) == Verdict.FAILS  # within the margin
    assert verdict("equivalent", [0.0, 0.0]) == Verdict.HOLDS
