"""The evidence of training runs: which are compared, what may not be, and by which test."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from phantomgrad_suite.report.baselines import Baselines, baseline_of
from phantomgrad_suite.report.claims.claim import RunsClaim
from phantomgrad_suite.report.claims.evidence import Effect, Evidence, Shown, signed
from phantomgrad_suite.report.claims.inference import (
    Difference,
    Outcome,
    equivalent,
    fails_more,
    greater,
    not_worse,
    varies_more,
)
from phantomgrad_suite.report.claims.quantities import (
    QUANTITIES,
    higher_is_better,
    is_logarithm,
)
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.identity import split_row
from phantomgrad_suite.runs.records import Record

Key = tuple[int, int]
"""Seed and fold of a run."""
RunsOf = Callable[[str], Mapping[Key, Record]]
"""Gives the runs of a row."""


class Compared(NamedTuple):
    """The values of a and b by independent unit: seeds, or folds, which are averaged over seeds."""

    a: list[float]
    b: list[float]

    @property
    def differences(self) -> list[float]:
        return [a - b for a, b in zip(self.a, self.b, strict=True)]


def evidence_of_runs(
    claim: RunsClaim, runs_of: RunsOf, baselines: Baselines, margin: float, level: float
) -> Evidence:
    """Return what the runs of the first seeds that all rows have say on a claim."""
    keys = _complete(claim, runs_of)
    if not keys:
        return Evidence.untested(_missing(claim, runs_of))
    runs = {row: [runs_of(row)[key] for key in keys] for row in claim.rows}
    reason = "" if len(keys) == claim.instances else _missing(claim, runs_of)
    if claim.test == "fails_more":
        return _failures(claim, runs, baselines, reason, level)
    compared, first = _compared(claim, keys, runs_of), runs[claim.a[0]][0]
    reason = reason or _diverged(runs) or _untrained(claim.rows, claim, runs, baselines)
    reason = reason or _unspread(claim, compared)
    shown = _shown(claim, compared, first), _effect(claim, compared, first, margin)
    if reason:
        return Evidence.untested(reason, *shown)
    return Evidence(_outcome(claim, compared, first, margin, level), *shown)


def _complete(claim: RunsClaim, runs_of: RunsOf) -> list[Key]:
    """Return the runs of the first seeds of which all rows have every fold."""
    common = set.intersection(*({*runs_of(row)} for row in claim.rows))
    folds = Counter(seed for seed, _ in common)
    seeds = sorted(seed for seed, n in folds.items() if n == max(1, claim.folds))
    return sorted(key for key in common if key[0] in seeds[: claim.seeds])


def _missing(claim: RunsClaim, runs_of: RunsOf) -> str:
    wanted = claim.instances * len(claim.rows)
    there = sum(min(len(runs_of(row)), claim.instances) for row in claim.rows)
    return f"{there} of {wanted} runs" if there < wanted else "the rows have other seeds or folds"


def _compared(claim: RunsClaim, keys: Sequence[Key], runs_of: RunsOf) -> Compared:
    """Return the means over rows, and over the seeds of a fold, of both sides."""
    units: dict[int, list[tuple[float, float]]] = {}
    for seed, fold in keys:
        for a, b in zip(claim.a, claim.b or claim.a, strict=True):
            values = _values(claim, runs_of(a)[seed, fold], runs_of(b)[seed, fold])
            units.setdefault(fold if claim.folds else seed, []).append(values)
    means = [tuple(map(fmean, zip(*values, strict=True))) for values in units.values()]
    return Compared([a for a, _ in means], [b for _, b in means])


def _values(claim: RunsClaim, a: Record, b: Record) -> tuple[float, float]:
    quantity = QUANTITIES[claim.quantity]
    if a.diverged or b.diverged:
        return math.nan, math.nan
    try:
        return quantity.of(a, b), quantity.of(b, a) if claim.b else 0.0
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        runs = " or ".join(sorted({f"{run.row}/{run.instance}" for run in (a, b)}))
        raise UserError(f"{runs} lacks what {claim.quantity} needs ({error!r})") from error


def _diverged(runs: Mapping[str, Sequence[Record]]) -> str:
    """Return the reason against means of survivors, if runs diverged."""
    pairs = list(zip(*runs.values(), strict=True))
    lost = sum(any(run.diverged for run in pair) for pair in pairs)
    return f"a run diverged in {lost} of {len(pairs)} pairs" if lost else ""


def _untrained(
    rows: Sequence[str],
    claim: RunsClaim,
    runs: Mapping[str, Sequence[Record]],
    baselines: Baselines,
) -> str:
    """Return the reason against a claim on rows that are no better than simple predictors."""
    which, found = QUANTITIES[claim.quantity].trained_by, []
    for row in rows:
        finished = [getattr(run.result, which) for run in runs[row] if not run.diverged]
        baseline = baseline_of(runs[row][0], baselines)
        mean = fmean(finished or [math.nan])
        if baseline and not baseline.is_beaten_by(mean):
            found.append(f"{split_row(row)[1]} did not train: {baseline.against(mean)}")
    more = f", and {len(found) - 1} more" if found[1:] else ""
    return found[0] + more if found else ""


def _unspread(claim: RunsClaim, compared: Compared) -> str:
    """Return the reason against an interval; equal values, by chance in coarse units, give none."""
    differences = compared.differences
    if not all(map(math.isfinite, differences)):
        return f"a run has no finite {claim.quantity}"
    sides = compared if claim.test == "varies_more" else [differences]
    alike = [all(math.isclose(x, side[0], abs_tol=1e-9) for x in side) for side in sides]
    return "all values are equal, which leaves no spread to test with" if any(alike) else ""


def _failures(
    claim: RunsClaim,
    runs: Mapping[str, Sequence[Record]],
    baselines: Baselines,
    reason: str,
    level: float,
) -> Evidence:
    """Return the evidence of runs that diverged, or are no better than a simple predictor."""
    which = QUANTITIES[claim.quantity].trained_by

    def failed(run: Record) -> bool:
        baseline = baseline_of(run, baselines)
        beaten = baseline is None or baseline.is_beaten_by(getattr(run.result, which))
        return bool(run.diverged) or not beaten

    a, b = ([failed(run) for run in runs[row]] for row in (claim.a[0], claim.b[0]))
    ours = " against ".join(f"{sum(side)} of {len(side)}" for side in (a, b)) + " failed"
    shown = Shown(ours, n=_n(claim, len(a)))
    reason = reason or _untrained(claim.b, claim, runs, baselines)
    if reason:
        return Evidence.untested(reason, shown)
    return Evidence(fails_more(a, b, claim.share, level), shown)


def _outcome(
    claim: RunsClaim, compared: Compared, first: Record, margin: float, level: float
) -> Outcome:
    """Return the outcome of a test on values; ``first`` is a run, which tells the metric."""
    quantity = QUANTITIES[claim.quantity]
    if claim.test == "varies_more":
        return varies_more(compared.a, compared.b, claim.ratio, level)
    d = Difference.of(compared.differences, over_folds=bool(claim.folds))
    if claim.test == "equivalent":
        return equivalent(d, margin, level)
    if claim.test == "not_worse":
        return not_worse(d if higher_is_better(first, quantity) else -d, margin, level)
    effect = margin if claim.effect is None and quantity.has_margin else claim.effect
    size = math.nan if effect is None else abs(effect)
    return greater(-d if claim.test == "less" else d, size, level)


def _effect(claim: RunsClaim, compared: Compared, first: Record, margin: float) -> Effect | None:
    """Return the difference, turned so that the claim's side is positive; none without a unit."""
    quantity = QUANTITIES[claim.quantity]
    if claim.test == "varies_more" or not quantity.has_margin:
        return None
    d = Difference.of(compared.differences, over_folds=bool(claim.folds))
    opposite = claim.test == "less" or (
        claim.test == "not_worse" and not higher_is_better(first, quantity)
    )
    d, sign = (-d, -1) if opposite else (d, 1)
    effect = math.nan if claim.effect is None else abs(claim.effect)
    paper = effect if claim.printed is None else sign * claim.printed
    unit = "%" if is_logarithm(first, quantity) else "points"
    around = margin if claim.test in ("equivalent", "not_worse") else 0.0
    return Effect(d.mean, *d.interval(), paper, around, unit)


def _shown(claim: RunsClaim, compared: Compared, first: Record) -> Shown:
    """Return the numbers of a comparison as text."""
    quantity, n = QUANTITIES[claim.quantity], _n(claim, len(compared.a))
    in_percent = is_logarithm(first, quantity)
    unit = " %" if in_percent else ""
    if claim.test == "varies_more":
        known = len(compared.a) > 1 and all(map(math.isfinite, compared.differences))
        spreads = [f"± {stdev(side):.2f}{unit}" for side in compared] if known else []
        return Shown(" against ".join(spreads), n=n)

    def text(value: float) -> str:
        if in_percent:
            return signed(100 * math.expm1(value / 100), 1)
        return signed(value, quantity.decimals)

    sides = [fmean(side) for side in (compared if claim.b else [compared.a])]
    means = [math.exp(mean / 100) if in_percent else mean for mean in sides]
    d = Difference.of(compared.differences, over_folds=bool(claim.folds))
    return Shown(
        " against ".join("—" if math.isnan(mean) else f"{mean:#.4g}" for mean in means),
        text(d.mean) + unit if math.isfinite(d.mean) else "",
        " to ".join(map(text, d.interval())) + unit if math.isfinite(d.error) else "",
        n,
    )


def _n(claim: RunsClaim, n: int) -> str:
    return str(n) if n == claim.n else f"{n} of {claim.n}"
