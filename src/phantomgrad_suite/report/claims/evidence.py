"""What the records say on a claim, before the verdicts of its family are corrected."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from phantomgrad_suite.report.baselines import Baselines, baseline_of
from phantomgrad_suite.report.claims.claim import Claim, RunsClaim, SpeedClaim, Untestable
from phantomgrad_suite.report.claims.inference import (
    Difference,
    Outcome,
    Verdict,
    equivalent,
    fails_more,
    greater,
    not_worse,
    varies_more,
)
from phantomgrad_suite.report.claims.quantities import (
    QUANTITIES,
    Quantity,
    higher_is_better,
    is_logarithm,
)
from phantomgrad_suite.runs.archive import Archive
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.identity import split_row
from phantomgrad_suite.runs.records import Record, StudyRecord

_EARLY = 3  # seeds (folds) from which a comparison whose runs are not all in has a direction
_INSTANCE = re.compile(r"seed(\d+)(?:-fold(\d+))?")  # of a run that does not differ from its row

RunsOf = Callable[[str], Mapping[tuple[int, int], Record]]
"""Gives the runs of a row by seed and fold."""


class Effect(NamedTuple):
    """What is measured, so that larger means as the claim says; a picture shows it.

    The interval is NaN for a single run, and ``paper`` for a number that is not printed. An effect
    within ``margin`` of zero counts as none. ``unit`` is ``points``, ``%`` or ``times``.
    """

    mean: float
    low: float
    high: float
    paper: float
    margin: float
    unit: str


@dataclass(frozen=True)
class Evidence:
    """The outcome of a test or, without one, a verdict and its reason; and the numbers as text."""

    verdict: Verdict = Verdict.UNTESTED
    reason: str = ""
    outcome: Outcome | None = None
    ours: str = ""
    difference: str = ""
    interval: str = ""
    n: str = ""
    effect: Effect | None = None  # none if it has no common unit


@dataclass(frozen=True)
class Sources:
    """The records that claims are tested with."""

    archive: Archive
    baselines: Baselines

    def evidence(self, claim: Claim, margin: float, level: float) -> Evidence:
        """Return what the records say on a claim."""
        if isinstance(claim, RunsClaim):
            return evidence_of_runs(claim, self.runs_of, self.baselines, margin, level)
        if isinstance(claim, SpeedClaim):
            row, _, instance = claim.study.rpartition("/")
            record = self.archive.records.get((row, instance))
            if isinstance(record, StudyRecord):
                return evidence_of_speed(claim, record, level)
            return Evidence(reason=f"{claim.study} has no record")
        assert isinstance(claim, Untestable)
        return Evidence(reason=claim.untestable)

    def runs_of(self, row: str) -> Mapping[tuple[int, int], Record]:
        """Return the runs of a row by seed and fold."""
        found = self.archive.of(Record, row)
        matches = [(_INSTANCE.fullmatch(run.instance), run) for run in found]
        return {(int(m[1]), int(m[2] or 0)): run for m, run in matches if m}

    def place(self, claim: Claim) -> Path | None:
        """Return the file or folder of the records that a claim is tested with."""
        if isinstance(claim, RunsClaim):
            scale, row = split_row(claim.a[0])
            return self.archive.folder / scale / row.split("/")[0]
        if isinstance(claim, SpeedClaim):
            return self.archive.file(claim.study.rpartition("/")[0])
        return None


# Training runs


def evidence_of_runs(
    claim: RunsClaim, runs_of: RunsOf, baselines: Baselines, margin: float, level: float
) -> Evidence:
    """Return what the runs of the first seeds that all rows have say on a claim."""
    known = {row: runs_of(row) for row in claim.rows}
    runs, missing = _complete(claim, known), _missing(claim, known)
    if runs.empty:
        return Evidence(reason=missing)
    awaited = "" if len(runs) == claim.instances else missing
    if claim.test == "fails_more":
        return _failures(claim, runs, baselines, awaited, level)
    compared = Comparison(claim, runs, margin if claim.margin is None else claim.margin)
    reason = awaited if len(compared.values) < _EARLY else ""
    trained = [row for row in claim.rows if row not in claim.may_fail]
    reason = reason or _diverged(runs) or _untrained(trained, claim, runs, baselines)
    evidence = compared.evidence(reason or compared.unspread())
    if evidence.reason:
        return evidence
    outcome = compared.outcome(level)
    if not awaited:
        return replace(evidence, outcome=outcome)
    direction = Verdict.TOWARDS if outcome.towards else Verdict.AGAINST
    return replace(evidence, verdict=direction, reason=awaited)  # no test before the last seed


def _complete(claim: RunsClaim, known: Mapping[str, Mapping[Any, Record]]) -> pd.DataFrame:
    """Return the runs of the first seeds of which all rows have every fold."""
    common = sorted(set.intersection(*({*runs} for runs in known.values())))
    index = pd.MultiIndex.from_tuples(common, names=["seed", "fold"])
    columns = {row: [found[key] for key in common] for row, found in known.items()}
    runs = pd.DataFrame(columns, index, dtype=object)
    folds = runs.groupby(level="seed").size()
    seeds = folds.index[folds == max(1, claim.folds)][: claim.seeds]
    return runs[runs.index.isin(seeds, level="seed")]


def _missing(claim: RunsClaim, known: Mapping[str, Mapping[Any, Record]]) -> str:
    wanted = claim.instances * len(claim.rows)
    there = sum(min(len(runs), claim.instances) for runs in known.values())
    return f"{there} of {wanted} runs" if there < wanted else "the rows have other seeds or folds"


def _diverged(runs: pd.DataFrame) -> str:
    """Return the reason against means of survivors, if runs diverged."""
    lost = int(runs.map(lambda run: bool(run.diverged)).any(axis=1).sum())
    return f"a run diverged in {lost} of {len(runs)} pairs" if lost else ""


def _untrained(
    rows: Sequence[str], claim: RunsClaim, runs: pd.DataFrame, baselines: Baselines
) -> str:
    """Return the reason against a claim on rows that are no better than simple predictors."""
    which, found = QUANTITIES[claim.quantity].trained_by, []
    for row in rows:
        finished = [getattr(run.result, which) for run in runs[row] if not run.diverged]
        baseline = baseline_of(runs[row].iloc[0], baselines)
        mean = float(np.mean(finished)) if finished else math.nan
        if baseline and not baseline.is_beaten_by(mean):
            found.append(
                f"{split_row(row)[1]} is no better than the baseline: {baseline.against(mean)}"
            )
    more = f", and {len(found) - 1} more" if found[1:] else ""
    return found[0] + more if found else ""


def _failures(
    claim: RunsClaim, runs: pd.DataFrame, baselines: Baselines, reason: str, level: float
) -> Evidence:
    """Return the evidence of runs that diverged, or are no better than a simple predictor."""
    which = QUANTITIES[claim.quantity].trained_by

    def failed(run: Record) -> bool:
        if claim.quantity == "diverged":
            return bool(run.diverged)
        baseline = baseline_of(run, baselines)
        beaten = baseline is None or baseline.is_beaten_by(getattr(run.result, which))
        return bool(run.diverged) or not beaten

    a, b = ([failed(run) for run in runs[row]] for row in (claim.a[0], claim.b[0]))
    ours = " against ".join(f"{sum(side)} of {len(side)}" for side in (a, b)) + " failed"
    reason = reason or _untrained(claim.b, claim, runs, baselines)
    share = 1.0 if claim.effect is None else claim.effect / 100
    outcome = None if reason else fails_more(a, b, share, level)
    return Evidence(reason=reason, outcome=outcome, ours=ours, n=_n(claim, len(a)))


@dataclass(frozen=True)
class Comparison:
    """The two sides of a claim: ``runs`` has a column for each row, by seed and fold."""

    claim: RunsClaim
    runs: pd.DataFrame
    margin: float

    @cached_property
    def values(self) -> pd.DataFrame:
        """The values of a and b by independent unit: seeds, or folds, averaged over seeds."""
        pairs = list(zip(self.claim.a, self.claim.b or self.claim.a, strict=True))
        found = [
            [_values(self.claim, run[a], run[b]) for a, b in pairs]
            for _, run in self.runs.iterrows()
        ]
        frame = pd.DataFrame(np.mean(found, axis=1), self.runs.index, ["a", "b"])
        unit = "fold" if self.claim.folds else "seed"
        return frame.groupby(level=unit).agg(lambda side: side.mean(skipna=False))

    @property
    def quantity(self) -> Quantity:
        return QUANTITIES[self.claim.quantity]

    @property
    def first(self) -> Record:
        """A run, which tells the metric."""
        record: Record = self.runs[self.claim.a[0]].iloc[0]
        return record

    @property
    def differences(self) -> pd.Series:
        return self.values["a"] - self.values["b"]

    @cached_property
    def difference(self) -> Difference:
        return Difference.of(self.differences.tolist(), over_folds=bool(self.claim.folds))

    @property
    def opposite(self) -> bool:
        """Whether the claim is on the side of negative differences."""
        less_is_better = not higher_is_better(self.first, self.quantity)
        return self.claim.test == "less" or (self.claim.test == "not_worse" and less_is_better)

    def unspread(self) -> str:
        """Return the reason against an interval, such as values that are equal by chance."""
        if not np.isfinite(self.differences).all():
            return f"a run has no finite {self.claim.quantity}"
        varies = self.claim.test == "varies_more"
        sides = [self.values["a"], self.values["b"]] if varies else [self.differences]
        alike = any(np.ptp(side) < 1e-9 for side in sides)
        return "all values are equal, which leaves no spread to test with" if alike else ""

    def outcome(self, level: float) -> Outcome:
        """Return that of the test of the claim."""
        claim, d = self.claim, -self.difference if self.opposite else self.difference
        if claim.test == "varies_more":
            ratio = 2.0 if claim.effect is None else claim.effect
            return varies_more(self.values["a"], self.values["b"], ratio, level)
        if claim.test in ("equivalent", "not_worse"):
            test = equivalent if claim.test == "equivalent" else not_worse
            return test(d, self.margin, level)
        default = self.margin if self.quantity.has_margin else math.nan
        return greater(d, default if claim.effect is None else abs(claim.effect), level)

    def effect(self) -> Effect | None:
        """Return the difference, positive on the claim's side; none without a unit."""
        claim, d = self.claim, -self.difference if self.opposite else self.difference
        if claim.test == "varies_more" or not self.quantity.has_margin:
            return None
        paper = math.nan if claim.effect is None else abs(claim.effect)
        unit = "%" if is_logarithm(self.first, self.quantity) else "points"
        around = self.margin if claim.test in ("equivalent", "not_worse") else 0.0
        return Effect(d.mean, *d.interval(), paper, around, unit)

    def evidence(self, reason: str) -> Evidence:
        """Return the numbers of a comparison as text, and why they are no test."""
        claim, d, n = self.claim, self.difference, _n(self.claim, len(self.values))
        in_percent = is_logarithm(self.first, self.quantity)
        unit = " %" if in_percent else ""
        if claim.test == "varies_more":
            known = len(self.values) > 1 and math.isfinite(d.mean)
            spreads = [f"± {std:.2f}{unit}" for std in self.values.std() if known]
            return Evidence(reason=reason, ours=" against ".join(spreads), n=n)

        def text(value: float) -> str:
            if in_percent:
                decimals = 2 if self.quantity.is_change else 1
                return signed(100 * math.expm1(value / 100), decimals)
            return signed(value, self.quantity.decimals)

        times = " times" if in_percent and self.quantity.is_change else ""
        sides = self.values[["a", "b"] if claim.b else ["a"]].mean(skipna=False)
        means = np.exp(sides / 100) if in_percent else sides
        return Evidence(
            reason=reason,
            ours=" against ".join("—" if math.isnan(x) else f"{x:#.4g}{times}" for x in means),
            difference=text(d.mean) + unit if math.isfinite(d.mean) else "",
            interval=" to ".join(map(text, d.interval())) + unit if d.error >= 0 else "",
            n=n,
            effect=self.effect(),
        )


def _values(claim: RunsClaim, a: Record, b: Record) -> tuple[float, float]:
    quantity = QUANTITIES[claim.quantity]
    if a.diverged or b.diverged:
        return math.nan, math.nan
    try:
        return quantity.of(a, b), quantity.of(b, a) if claim.b else 0.0
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        runs = " or ".join(sorted({f"{run.row}/{run.instance}" for run in (a, b)}))
        raise UserError(f"{runs} lacks what {claim.quantity} needs ({error!r})") from error


def _n(claim: RunsClaim, n: int) -> str:
    return str(n) if n == claim.n else f"{n} of {claim.n}"


def signed(value: float, decimals: int = 2) -> str:
    """Return a number with its sign; empty if it is not finite."""
    return f"{value:+.{decimals}f}" if math.isfinite(value) else ""


# Speed


def evidence_of_speed(claim: SpeedClaim, record: StudyRecord, level: float) -> Evidence:
    """Return how many times faster a is than b per sample, by the rounds in which both were timed.

    The interval is a t interval of the logarithm. The claim holds if the interval is above 1 and
    reaches the paper's ratio; below that ratio, it only points towards the claim.
    """
    measured = {row["row"]: row for row in record.numbers["rows"]}
    if missing := {claim.a, claim.b} - measured.keys():
        raise UserError(f"{claim.study} has no row {missing.pop()}: it has {', '.join(measured)}")
    a, b = (_per_sample(measured[row], claim.part) for row in (claim.a, claim.b))
    if len(a) != len(b) or len(a) < 2:
        return Evidence(reason=f"{claim.study} has {len(a)} and {len(b)} rounds of the two rows")
    d = Difference.of(np.log(b / a).tolist())
    mean, first, last = (math.exp(value) for value in (d.mean, *d.interval()))
    low, high = (math.exp(end) for end in d.interval(1 - level))
    return Evidence(
        _speed(low, high, claim.ratio),
        ours=f"{mean:.2f} times",
        interval=f"{first:.2f} to {last:.2f}",
        n=str(d.n),
        effect=Effect(mean, first, last, claim.ratio if claim.ratio > 1 else math.nan, 0, "times"),
    )


def _per_sample(row: Mapping[str, Any], part: str) -> np.ndarray:
    return np.array(row["seconds"][part]["samples"]) / float(row["batch"])


def _speed(low: float, high: float, ratio: float) -> Verdict:
    if low > 1:
        return Verdict.HOLDS if high >= ratio else Verdict.TOWARDS
    return Verdict.CONTRADICTED if high < 1 else Verdict.AGAINST
