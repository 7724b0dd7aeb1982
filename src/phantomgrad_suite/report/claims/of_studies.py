"""The evidence of studies: checks that they have made, and times of training steps."""

import math
from collections.abc import Mapping
from typing import Any

from phantomgrad_suite.report.claims.claim import SpeedClaim, StudyClaim
from phantomgrad_suite.report.claims.evidence import Effect, Evidence, Shown
from phantomgrad_suite.report.claims.inference import Difference
from phantomgrad_suite.report.claims.verdicts import Finding, Verdict
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.records import StudyRecord


def evidence_of_checks(claim: StudyClaim, record: StudyRecord | None) -> Evidence:
    """Return whether all checks of a claim hold, as the study has recorded them."""
    if record is None:
        return Evidence.untested(f"{claim.study} has no record")
    checks = {check.claim: check for check in record.checks}
    if unknown := [name for name in claim.checks if name not in checks]:
        raise UserError(
            f"{claim.study} has no check {unknown[0]!r}: choose from {', '.join(checks) or 'none'}"
        )
    found = [checks[name] for name in claim.checks]
    failed = [check.claim for check in found if not check.holds]
    verdict = Verdict.CONTRADICTED if failed else Verdict.HOLDS
    shown = Shown(f"{len(found) - len(failed)} of {len(found)} checks hold")
    return Evidence(Finding(verdict, reason="; ".join(failed)), shown)


def evidence_of_speed(claim: SpeedClaim, record: StudyRecord | None, level: float) -> Evidence:
    """Return how many times faster a is than b per sample, by the rounds in which both were timed.

    The interval is a t interval of the logarithm. The claim holds if the interval is above 1 and
    reaches the paper's ratio; below that ratio, it only points towards the claim.
    """
    if record is None:
        return Evidence.untested(f"{claim.study} has no record")
    measured = {row["row"]: row for row in record.numbers["rows"]}
    if missing := [row for row in claim.rows.values() if row not in measured]:
        raise UserError(f"{claim.study} has no row {missing[0]}: it has {', '.join(measured)}")
    a, b = (_per_sample(measured[claim.rows[side]], claim.part) for side in ("a", "b"))
    if len(a) != len(b) or len(a) < 2:
        return Evidence.untested(f"{claim.study} has {len(a)} and {len(b)} rounds of the two rows")
    d = Difference.of([math.log(y / x) for x, y in zip(a, b, strict=True)])
    low, high = (math.exp(end) for end in d.interval(1 - level))
    shown = Shown(
        ours=f"{math.exp(d.mean):.2f} times",
        interval=" to ".join(f"{math.exp(end):.2f}" for end in d.interval()),
        n=str(d.n),
    )
    paper = claim.ratio if claim.ratio > 1 else math.nan
    ours = [math.exp(value) for value in (d.mean, *d.interval())]
    effect = Effect(ours[0], ours[1], ours[2], paper, 0.0, "times")
    return Evidence(Finding(_speed(low, high, claim.ratio)), shown, effect)


def _per_sample(row: Mapping[str, Any], part: str) -> list[float]:
    return [seconds / row["batch"] for seconds in row["seconds"][part]["samples"]]


def _speed(low: float, high: float, ratio: float) -> Verdict:
    if low > 1:
        return Verdict.HOLDS if high >= ratio else Verdict.TOWARDS
    return Verdict.CONTRADICTED if high < 1 else Verdict.AGAINST
