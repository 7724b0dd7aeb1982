"""The evidence of runs and studies: what is compared, and what may not be."""

import math
from dataclasses import replace
from statistics import fmean, stdev

import pytest
from report.conftest import published, record

from phantomgrad_suite.report.baselines import Baseline, best_baselines
from phantomgrad_suite.report.claims.claim import RunsClaim, SpeedClaim
from phantomgrad_suite.report.claims.evidence import evidence_of_runs, evidence_of_speed
from phantomgrad_suite.report.claims.inference import Difference, Verdict, decide
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.metrics import metric_of
from phantomgrad_suite.runs.records import Result

DATA = "sha256:aaaaaaaa11"  # of the records of the tests
TEXT = {"claim": "A", "place": "Sec. 1", "paper": "none"}


def claim(**changes):
    content = {"a": ("a",), "b": ("b",), "quantity": "last", "test": "greater", "seeds": 3}
    return RunsClaim(**{**TEXT, **content, **changes})


def runs(values, **changes):
    """Return the runs of a row, from the accuracy of the last epoch by seed, or seed and fold."""
    keys = [key if isinstance(key, tuple) else (key, 0) for key in values]
    made = [record("t/row", "seed0", [0.99, value], **changes) for value in values.values()]
    return dict(zip(keys, made, strict=True))


def seeds(*values, **changes):
    return runs(dict(enumerate(values)), **changes)


def diverged(run):
    return replace(run, result=Result.missing("accuracy", "max"), diverged={"step": 8})


def judged(asked, rows, baselines=None):
    return evidence_of_runs(asked, rows.__getitem__, baselines or {}, 1.0, 0.05)


def verdict(evidence):
    return decide(evidence.outcome, 0.05) if evidence.outcome else evidence.verdict


def reason(asked, rows, baselines=None):
    found = judged(asked, rows, baselines)
    assert verdict(found) == Verdict.UNTESTED
    return found.reason


def must_beat(score, name="RBF-SVM", metric="accuracy"):
    return {(DATA, metric): Baseline(name, score, metric_of(metric))}


def test_pairs_are_those_of_the_first_seeds_that_all_rows_have():
    rows = {"a": seeds(0.81, 0.82, 0.84, 0.1), "b": seeds(0.80, 0.80, 0.80, 0.9)}
    found = judged(claim(), rows)
    assert found.outcome.p == pytest.approx(Difference.of([1.0, 2.0, 4.0]).p_above(0))
    assert (found.ours, found.difference, found.n) == ("82.33 against 80.00", "+2.33", "3")
    del rows["b"][0, 0]
    assert judged(claim(seeds=2), rows).ours == "83.00 against 80.00"


def test_missing_runs_are_counted():
    rows = {"a": seeds(0.81, 0.82, 0.83), "b": seeds(0.80, 0.80)}
    assert reason(claim(), {"a": {}, "b": {}}) == "0 of 6 runs"
    rows["b"] = runs({1: 0.8, 2: 0.8, 3: 0.8})
    assert reason(claim(), rows) == "the rows have other seeds or folds"


@pytest.mark.parametrize(("b", "direction"), [(0.80, Verdict.TOWARDS), (0.90, Verdict.AGAINST)])
def test_three_seeds_of_more_have_a_direction_and_no_test(b, direction):
    rows = {"a": seeds(0.81, 0.82, 0.83, 0.84), "b": seeds(b, b, b)}
    found = judged(claim(seeds=4), rows)
    assert (found.verdict, found.outcome, found.reason) == (direction, None, "7 of 8 runs")
    assert (found.n, found.effect is None) == ("3 of 4", False)


def test_rows_are_averaged_within_a_seed_and_seeds_within_a_fold():
    rows = {"a": seeds(0.80, 0.82), "c": seeds(0.90, 0.94), "b": seeds(0.80, 0.80)}
    rows["d"] = seeds(0.80, 0.80)
    found = judged(claim(a=("a", "c"), b=("b", "d"), seeds=2), rows)
    assert found.outcome.p == pytest.approx(Difference.of([5.0, 8.0]).p_above(0))
    values = {(s, f): 0.8 + (1 + s) * (1 + f) / 100 for s in range(2) for f in range(3)}
    rows = {"a": runs(values), "b": runs(dict.fromkeys(values, 0.80))}
    found = judged(claim(seeds=2, folds=3), rows)
    d = Difference.of([1.5, 3.0, 4.5], over_folds=True)
    assert found.outcome.p == pytest.approx(d.p_above(0))
    assert found.interval == " to ".join(f"{end:+.2f}" for end in d.interval())
    assert found.n == "3"
    del rows["a"][1, 2]
    found = judged(claim(seeds=2, folds=3), rows)
    assert (found.verdict, found.reason) == (Verdict.TOWARDS, "11 of 12 runs")
    assert found.difference == "+2.00"  # of the complete seed


def test_means_of_survivors_are_no_evidence():
    rows = {"a": seeds(0.81, 0.82, 0.83), "b": seeds(0.60, 0.61, 0.62)}
    rows["b"][1, 0] = diverged(rows["b"][1, 0])
    assert reason(claim(), rows) == "a run diverged in 1 of 3 pairs"
    found = judged(claim(), rows)
    assert (found.ours, found.difference, found.interval) == ("— against —", "", "")
    assert "diverged" in reason(claim(test="varies_more"), rows)


@pytest.mark.parametrize(("quantity", "trained"), [("last", False), ("best", True)])
def test_rows_must_beat_the_baselines_with_the_result_that_is_compared(quantity, trained):
    rows = {"a": seeds(0.81, 0.82, 0.84), "b": seeds(0.45, 0.46, 0.47)}  # best: 0.99
    found = judged(claim(quantity=quantity, seeds=2), rows, must_beat(0.48))
    if trained:
        assert "equal" in found.reason  # all best epochs are alike
        return
    assert found.reason == "b is no better than the baseline: 45.50 against 48.00 %, RBF-SVM"
    assert found.ours == "81.50 against 45.50"
    both = {"a": rows["b"], "b": rows["b"]}
    assert reason(claim(), both, must_beat(0.48)).endswith("RBF-SVM, and 1 more")
    assert verdict(judged(claim(), rows)) == Verdict.HOLDS  # no baselines


def test_perplexities_must_be_smaller():
    def texts(*values):
        results = [Result("perplexity", value, 1, value, mode="min") for value in values]
        return {(i, 0): record("t", "seed0", [v.last], result=v) for i, v in enumerate(results)}

    rows = {"a": texts(110.0, 111.0, 112.0), "b": texts(100.0, 100.0, 100.0)}
    found = judged(claim(), rows, must_beat(120.0, metric="perplexity"))
    assert (found.ours, found.difference) == ("111.0 against 100.0", "+11.0 %")
    assert verdict(judged(claim(test="not_worse"), rows)) == Verdict.CONTRADICTED
    name = "Kneser-Ney, order 3"
    text = reason(claim(), rows, must_beat(105.0, name, "perplexity"))
    assert text == f"a is no better than the baseline: 111.00 against 105.00, {name}"


def test_runs_that_diverge_or_do_not_beat_the_baseline_fail():
    """Only b must have trained."""
    rows = {"a": seeds(0.1, 0.1, 0.1, 0.9, 0.1), "b": seeds(0.9, 0.9, 0.9, 0.9, 0.9)}
    rows["a"][0, 0] = diverged(rows["a"][0, 0])
    asked = claim(test="fails_more", seeds=5)
    found = judged(asked, rows, must_beat(0.5))
    assert (found.ours, found.n) == ("4 of 5 against 0 of 5 failed", "5")
    assert found.outcome.p == pytest.approx(6 / 252)
    assert judged(asked, rows).ours == "1 of 5 against 0 of 5 failed"
    swapped = {"a": rows["b"], "b": rows["a"]}
    assert "b is no better than the baseline: 30.00" in reason(asked, swapped, must_beat(0.5))
    assert verdict(judged(asked, swapped)) == Verdict.AGAINST
    del rows["a"][4, 0]
    assert reason(asked, rows, must_beat(0.5)) == "9 of 10 runs"


def test_failures_may_be_divergences_alone():
    """The row to compare with must have trained all the same."""
    rows = {"a": seeds(0.9, 0.1, 0.9), "b": seeds(0.9, 0.9, 0.1)}
    rows["a"][0, 0] = diverged(rows["a"][0, 0])
    asked = claim(test="fails_more", quantity="diverged")
    assert judged(asked, rows, must_beat(0.5)).ours == "1 of 3 against 0 of 3 failed"
    assert "b is no better than the baseline" in reason(asked, rows, must_beat(0.7))
    with pytest.raises(ValueError, match="quantity=diverged needs test=fails_more, got greater"):
        claim(quantity="diverged")


def test_a_row_that_is_said_to_be_bad_may_be_below_the_baseline():
    rows = {"a": seeds(0.9, 0.91, 0.92), "b": seeds(0.1, 0.11, 0.13)}
    assert "b is no better than the baseline" in reason(claim(), rows, must_beat(0.5))
    assert verdict(judged(claim(may_fail=("b",)), rows, must_beat(0.5))) == Verdict.HOLDS
    worse = claim(a=("b",), b=("a",), may_fail=("b",))
    assert "a is no better than the baseline" in reason(worse, rows, must_beat(0.95))
    with pytest.raises(ValueError, match="may_fail must be one of a, b, got 'c'"):
        claim(may_fail=("c",))


def test_spreads_are_shown_as_standard_deviations():
    a, b = [0.5, 0.7, 0.9], [0.81, 0.80, 0.79]
    found = judged(claim(test="varies_more"), {"a": seeds(*a), "b": seeds(*b)})
    assert found.ours == f"± {100 * stdev(a):.2f} against ± {100 * stdev(b):.2f}"
    assert found.outcome.p == pytest.approx(1 / 401)  # two degrees of freedom each


def test_equal_or_missing_differences_cannot_be_tested():
    """Accuracies over few samples are coarse, and two pairs may agree by chance."""
    rows = {"a": seeds(0.75, 0.5), "b": seeds(0.5, 0.25)}
    assert "all values are equal" in reason(claim(seeds=2), rows)
    rows = {"a": seeds(0.5, 0.6, 0.7), "b": seeds(0.5, 0.5, 0.5)}
    assert "all values are equal" in reason(claim(test="varies_more"), rows)
    rows = {"a": seeds(0.75, math.nan, 0.8), "b": seeds(0.5, 0.25, 0.7)}
    assert reason(claim(), rows) == "a run has no finite last"


@pytest.mark.parametrize("effect", [None, 3.0, -3.0])
@pytest.mark.parametrize("test", ["greater", "less"])
def test_power_is_for_the_effect_or_else_the_margin(effect, test):
    rows = {"a": seeds(0.81, 0.82, 0.84), "b": seeds(0.80, 0.80, 0.80)}
    found = judged(claim(test=test, effect=effect), rows)
    power = Difference.of([1.0, 2.0, 4.0]).power_above(abs(effect or 1.0), 0.05)
    assert found.outcome.power == pytest.approx(power)
    sign = 1 if test == "greater" else -1  # right means as the claim says
    assert found.effect.mean == pytest.approx(sign * 7 / 3)
    assert found.effect.paper == pytest.approx(3.0 if effect else math.nan, nan_ok=True)


def test_a_claim_may_state_its_own_margin():
    rows = {"a": seeds(0.81, 0.82, 0.84), "b": seeds(0.80, 0.80, 0.80)}  # 2.3 points apart
    alike = [judged(claim(test="equivalent", margin=m), rows).outcome.towards for m in (None, 3.0)]
    assert alike == [False, True]


def test_a_record_without_the_quantity_is_named():
    rows = {"a": seeds(0.81, 0.82, 0.84), "b": seeds(0.80, 0.80, 0.80)}
    with pytest.raises(UserError, match="t/row/seed0 lacks what cosine_min needs"):
        judged(claim(quantity="cosine_min"), rows)


# Speed


def timed(a, b, batches=(8, 8)):
    rows = [
        {"row": name, "batch": batch, "seconds": {"step": {"samples": samples}}}
        for name, samples, batch in zip("ab", (a, b), batches, strict=True)
    ]
    return published("throughput/cpu", numbers={"rows": rows})


def speed(**changes):
    content = {"study": "throughput/cpu/seed0", "a": "a", "b": "b", "part": "step"}
    return SpeedClaim(**{**TEXT, **content, **changes})


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        ([1.4, 1.5, 1.6], Verdict.HOLDS),
        ([1.28, 1.30, 1.29], Verdict.TOWARDS),
        ([0.5, 1.5, 1.6], Verdict.AGAINST),
        ([0.78, 0.8, 0.79], Verdict.CONTRADICTED),
        ([2.0, 2.1, 1.9], Verdict.HOLDS),
    ],
)
def test_a_speed_is_compared_with_the_papers(ratios, expected):
    a = [1.0, 2.0, 3.0]
    study = timed(a, [ratio * x for ratio, x in zip(ratios, a, strict=True)])
    found = evidence_of_speed(speed(ratio=1.4), study, 0.05)
    assert (found.verdict, found.n) == (expected, "3")
    assert found.ours == f"{math.exp(fmean(map(math.log, ratios))):.2f} times"


def test_speeds_are_per_sample_and_need_rounds_of_both():
    found = evidence_of_speed(speed(), timed([2.0, 2.1], [2.0, 2.1], batches=(16, 8)), 0.05)
    assert found.ours == "2.00 times"
    few = evidence_of_speed(speed(), timed([2.0], [2.0]), 0.05)
    assert few.reason == "throughput/cpu/seed0 has 1 and 1 rounds of the two rows"
    with pytest.raises(UserError, match="has no row c: it has a, b"):
        evidence_of_speed(speed(a="c"), timed([2.0], [2.0]), 0.05)


def test_the_best_baseline_of_the_same_data_counts_and_of_n_grams_that_of_order_three():
    images = published("baselines/cifar10_8x8")
    text = published("baselines/wikitext103_characters")
    found = best_baselines([images, text])
    assert {str(baseline) for baseline in found.values()} == {
        *("48.4 (RBF-SVM)", "10.8 (Kneser-Ney, order 3)")
    }
    assert not Baseline("x", 0.5, metric_of("accuracy")).is_beaten_by(math.nan)
