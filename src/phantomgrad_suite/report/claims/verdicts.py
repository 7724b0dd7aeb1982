"""Paired differences and the verdicts on a family of claims, by the rules of ``claims.yaml``.

Where two rules apply, a claim that holds is not refuted: a difference may be significant and yet
within the margin. The p-values of the opposite direction are corrected for as many claims.
"""

import math
import statistics
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from scipy import stats

LEVEL = 0.05
TESTS = ("greater", "less", "equivalent", "not_worse")


class Verdict(StrEnum):
    """What the runs say on a claim."""

    HOLDS = "holds"
    FAILS = "does not hold"
    UNSETTLED = "not settled"
    OPEN = "open"  # runs are missing

    @property
    def plural(self) -> str:
        """The verdict on several claims."""
        return self.replace("does", "do").replace("holds", "hold")


class Finding(NamedTuple):
    """The p-value of a claim, None while it is open, the verdict, and why a claim does not hold."""

    p: float | None
    verdict: Verdict
    reason: str = ""


class Difference(NamedTuple):
    """The mean of ``n`` paired differences and its standard error, NaN if there is none."""

    mean: float
    error: float
    n: int

    @classmethod
    def of(cls, values: Sequence[float], folds: int = 0) -> "Difference":
        """Return the mean difference, over ``folds`` with the error of Nadeau and Bengio (2003).

        Their correction adds the ratio of test to training samples, 1 / (folds - 1), to 1 / n.
        """
        n, mean = len(values), sum(values) / len(values) if values else math.nan
        if n < 2 or not math.isfinite(mean):
            return cls(mean, math.nan, n)
        share = 1 / n + (1 / (folds - 1) if folds else 0)
        return cls(mean, statistics.stdev(values) * math.sqrt(share), n)

    def interval(self) -> tuple[float, float]:
        """Return the 95 % t interval."""
        reach = float(stats.t.ppf(1 - LEVEL / 2, self.n - 1)) * self.error
        return self.mean - reach, self.mean + reach

    def p_above(self, bound: float) -> float:
        """Return the one-sided p-value of a mean above ``bound``; 1 if it cannot be tested."""
        distance = self.mean - bound
        if not self.error > 0:
            return 0.0 if self.error == 0 and distance > 0 else 1.0
        return float(stats.t.sf(distance / self.error, self.n - 1))

    def __neg__(self) -> "Difference":
        return self._replace(mean=-self.mean)


class Comparison(NamedTuple):
    """A difference a - b and its test; the margin is NaN where none is defined."""

    test: str
    difference: Difference
    margin: float
    higher_is_better: bool = True

    def measures(self) -> tuple[float, float, bool]:
        """Return the p-values for and against the claim, and whether the interval refutes it."""
        turned = self.test == "less" or (self.test == "not_worse" and not self.higher_is_better)
        d = -self.difference if turned else self.difference  # large values speak for the claim
        (low, high), margin = d.interval(), self.margin
        if self.test == "equivalent":
            p = max(d.p_above(-margin), (-d).p_above(-margin))
            return p, 1.0, low > margin or high < -margin
        if self.test == "not_worse":
            return d.p_above(-margin), 1.0, high < -margin
        return d.p_above(0), (-d).p_above(0), -margin < low and high < margin


def judge(family: Sequence[Comparison]) -> list[Finding]:
    """Return what the runs say on each claim of a family, with p-values after Holm's correction."""
    measures = [comparison.measures() for comparison in family]
    p_for, p_against = (holm([each[side] for each in measures]) for side in (0, 1))
    findings = []
    for one, p, against, (*_, refuted) in zip(family, p_for, p_against, measures, strict=True):
        if p < LEVEL:
            findings.append(Finding(p, Verdict.HOLDS))
        elif against < LEVEL:
            findings.append(Finding(p, Verdict.FAILS, "the opposite is significant"))
        elif refuted:
            beyond = one.test in ("equivalent", "not_worse")
            reason = "beyond the margin" if beyond else "no difference beyond the margin"
            findings.append(Finding(p, Verdict.FAILS, reason))
        else:
            findings.append(Finding(p, Verdict.UNSETTLED))
    return findings


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values after Holm's correction for their number."""
    corrected, largest = [1.0] * len(p_values), 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        corrected[i] = largest
    return corrected
