"""Five verdicts, and Holm's correction."""

import math

import pytest

from phantomgrad_suite.report.claims.inference import (
    Difference,
    Outcome,
    equivalent,
    greater,
    not_worse,
)
from phantomgrad_suite.report.claims.verdicts import Finding, Verdict, corrected, decide, holm

LEVEL = 0.05
HOLDS, TOWARDS, AGAINST, CONTRADICTED, UNTESTED = Verdict


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
    assert [decide(outcome, LEVEL).verdict for outcome in outcomes] == verdicts


def test_beyond_the_margin_a_vague_mean_points_against():
    vague = Difference.of([-9.0, 0.0, 3.0])
    for test in (not_worse, equivalent):
        assert decide(test(vague, 1.0, LEVEL), LEVEL).verdict == AGAINST


def test_the_level_is_what_is_left_to_spend():
    outcome = greater(Difference.of([1.0, 2.0, 3.0]), 1.0, LEVEL)  # p = 0.037
    assert decide(outcome, 0.05) == (HOLDS, outcome.p, "")
    assert decide(outcome, 0.025) == (TOWARDS, outcome.p, "")
    assert decide(outcome._replace(p=0.963, against=0.037), 0.025).verdict == TOWARDS


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.9]) == pytest.approx([0.04, 0.09, 0.09, 0.9])
    assert holm([0.6, 0.5]) == [1.0, 1.0]
    assert holm([]) == []


def test_a_family_corrects_both_sides_and_counts_what_is_missing():
    missing = Finding(UNTESTED, reason="3 of 6 runs")
    outcomes = [Outcome(0.02, 0.98, True), Outcome(0.99, 0.01, False), missing]
    first, second, third = corrected(outcomes)
    assert first[:2] == (pytest.approx(0.06), 1.0)
    assert second[:2] == (1.0, pytest.approx(0.03))
    assert third is missing
    assert [decide(result, LEVEL).verdict for result in (first, second, third)] == [
        *(TOWARDS, CONTRADICTED, UNTESTED)
    ]


@pytest.mark.parametrize("p", [0.001, 0.02, 0.5])
def test_what_holds_before_a_test_is_made_holds_afterwards(p):
    other, missing = Outcome(0.015, 0.9, True), Finding(UNTESTED)
    before, _ = corrected([other, missing])
    after, _ = corrected([other, Outcome(p, 1 - p, True)])
    assert after.p <= before.p
    assert math.isclose(before.p, 0.03)


def test_a_finding_prints_its_reason():
    assert str(Finding(UNTESTED, reason="no data")) == "cannot be tested here (no data)"
    assert str(Finding(HOLDS, 0.01)) == "holds"
    assert [verdict.plural for verdict in Verdict] == [
        *("hold", "point towards", "point against", "contradicted", "cannot be tested here")
    ]
