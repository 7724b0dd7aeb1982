"""Paired differences, their intervals, and the verdicts on a family of claims.

The rules are those in the header of ``results/claims.yaml``. Where two of them apply, a claim that
holds is not also refuted: a difference may be both significant and within the margin.
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
        if self.error == 0:
            return 0.0 if distance > 0 else 1.0
        p = float(stats.t.sf(distance / self.error, self.n - 1))
        return 1.0 if math.isnan(p) else p

    def __neg__(self) -> "Difference":
        return self._replace(mean=-self.mean)


class Comparison(NamedTuple):
    """A difference a - b and its test; ``margin`` is None where none is defined."""

    test: str
    difference: Difference
    margin: float | None
    higher_is_better: bool = True

    @property
    def _towards(self) -> Difference:
        """The difference, turned so that large values speak for the claim."""
        reverse = self.test == "less" or (self.test == "not_worse" and not self.higher_is_better)
        return -self.difference if reverse else self.difference

    def p_for(self) -> float:
        """Return the p-value with which the claim holds."""
        d, margin = self._towards, self.margin or 0.0
        if self.test == "equivalent":
            return max(d.p_above(-margin), (-d).p_above(-margin))
        return d.p_above(-margin if self.test == "not_worse" else 0.0)

    def p_against(self) -> float:
        """Return the p-value of the opposite direction, 1 for tests that have none."""
        return (-self._towards).p_above(0.0) if self.test in ("greater", "less") else 1.0

    def is_refuted(self) -> bool:
        """Return whether the 95 % interval contradicts the claim."""
        if self.margin is None:
            return False
        low, high = self._towards.interval()
        if self.test == "equivalent":
            return low > self.margin or high < -self.margin
        return high < -self.margin if self.test == "not_worse" else self._within(low, high)

    def _within(self, low: float, high: float) -> bool:
        return self.margin is not None and -self.margin < low and high < self.margin


def judge(family: Sequence[Comparison]) -> list[tuple[float, Verdict]]:
    """Return, for each claim of a family, its p-value after Holm's correction and the verdict.

    The p-values of the opposite direction are corrected for as many claims.
    """
    found = []
    backward = holm([comparison.p_against() for comparison in family])
    forward = holm([comparison.p_for() for comparison in family])
    for comparison, p, against in zip(family, forward, backward, strict=True):
        fails = against < LEVEL or comparison.is_refuted()
        other = Verdict.FAILS if fails else Verdict.UNSETTLED
        found.append((p, Verdict.HOLDS if p < LEVEL else other))
    return found


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values after Holm's correction for their number."""
    corrected, largest = [1.0] * len(p_values), 0.0
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        corrected[i] = largest
    return corrected
