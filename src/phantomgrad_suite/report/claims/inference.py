"""The tests of claims: p-values for and against, the power, and what follows: the verdict.

Every test returns an :class:`Outcome`. Its power is the probability that it succeeds at ``level``,
given the observed standard deviations.
"""

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import integrate, stats


class Outcome(NamedTuple):
    """What a test says on a claim; ``towards`` is whether the estimate is on the claim's side."""

    p: float
    against: float  # the p-value of the opposite
    towards: bool
    power: float = math.nan


class Difference(NamedTuple):
    """The mean of ``n`` paired differences and its standard error, NaN if there is none."""

    mean: float
    error: float
    n: int

    @classmethod
    def of(cls, values: Sequence[float], *, over_folds: bool = False) -> "Difference":
        """Return the mean difference; ``over_folds`` a value is one of each fold.

        The training sets of folds overlap. The correction of Nadeau and Bengio (2003) adds the
        ratio of test to training samples, 1 / (n - 1), to 1 / n.
        """
        n, mean = len(values), sum(values) / len(values) if values else math.nan
        if n < 2 or not math.isfinite(mean):
            return cls(mean, math.nan, n)
        share = 1 / n + (1 / (n - 1) if over_folds else 0)
        return cls(mean, float(np.std(values, ddof=1)) * math.sqrt(share), n)

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return the t interval."""
        reach = float(stats.t.ppf((1 + confidence) / 2, self.n - 1)) * self.error
        return self.mean - reach, self.mean + reach

    def p_above(self, bound: float) -> float:
        """Return the one-sided p-value of a mean above ``bound``; 1 without a spread."""
        if not self.error > 0:
            return 1.0
        return float(stats.t.sf((self.mean - bound) / self.error, self.n - 1))

    def power_above(self, distance: float, level: float) -> float:
        """Return the power of :meth:`p_above` if the mean is ``distance`` above the bound.

        The test statistic has a noncentral t distribution.
        """
        if not self.error > 0:
            return math.nan
        freedom = self.n - 1
        return float(stats.nct.sf(stats.t.isf(level, freedom), freedom, distance / self.error))

    def power_within(self, margin: float, level: float) -> float:
        r"""Return the power of two one-sided tests against ``margin`` if the mean is 0.

        With Z normal and S the observed standard error, independent of each other and in units of
        the true one, both tests succeed if :math:`|Z| < m - t S`, where m is the margin in these
        units and t the critical value. The integral is over the density of S.
        """
        if not self.error > 0:
            return math.nan
        freedom = self.n - 1
        m, t = margin / self.error, stats.t.isf(level, freedom)
        spread = stats.chi(freedom, scale=1 / math.sqrt(freedom))

        def success(s: float) -> float:
            return float((1 - 2 * stats.norm.sf(m - t * s)) * spread.pdf(s))

        return float(integrate.quad(success, 0, m / t, points=[min(1, m / t)])[0])

    def __neg__(self) -> "Difference":
        return self._replace(mean=-self.mean)


def greater(d: Difference, effect: float, level: float) -> Outcome:
    """Test whether the mean is above 0; the power is that for a mean of ``effect``."""
    return Outcome(d.p_above(0), (-d).p_above(0), d.mean > 0, d.power_above(effect, level))


def not_worse(d: Difference, margin: float, level: float) -> Outcome:
    """Test whether the mean is above ``-margin``; the power is that for a mean of 0.

    The opposite is a two-sided test: an interval that is beyond the margin as a whole.
    """
    against = min(1.0, 2 * (-d).p_above(margin))
    return Outcome(d.p_above(-margin), against, d.mean > -margin, d.power_above(margin, level))


def equivalent(d: Difference, margin: float, level: float) -> Outcome:
    """Test whether the mean is within ``margin`` of 0, by two one-sided tests.

    The opposite is a two-sided test, as of :func:`not_worse`; the power is that for a mean of 0.
    """
    p = max(d.p_above(-margin), (-d).p_above(-margin))
    against = min(1.0, 2 * min(d.p_above(margin), (-d).p_above(margin)))
    return Outcome(p, against, abs(d.mean) < margin, d.power_within(margin, level))


def fails_more(a: Sequence[bool], b: Sequence[bool], share: float, level: float) -> Outcome:
    """Test whether runs of ``a`` fail more often than those of ``b``, by Fisher's exact test.

    The power is that for a failing with probability ``share`` and b never.
    """
    failed = range(len(a) + 1)
    succeeds = [_fisher(n, len(a), 0, len(b)) < level for n in failed]
    return Outcome(
        _fisher(sum(a), len(a), sum(b), len(b)),
        _fisher(sum(b), len(b), sum(a), len(a)),
        sum(a) / len(a) > sum(b) / len(b),
        float(stats.binom.pmf(failed, len(a), share) @ succeeds),
    )


def _fisher(failed_a: int, n_a: int, failed_b: int, n_b: int) -> float:
    table = [[failed_a, n_a - failed_a], [failed_b, n_b - failed_b]]
    return float(stats.fisher_exact(table, alternative="greater").pvalue)


def varies_more(a: Sequence[float], b: Sequence[float], ratio: float, level: float) -> Outcome:
    """Test whether the variance of ``a`` is above that of ``b``, by the F test; both must vary.

    The power is that for standard deviations of this ``ratio``.
    """
    observed = float(np.var(a, ddof=1) / np.var(b, ddof=1))
    f = stats.f(len(a) - 1, len(b) - 1)
    power = f.sf(f.isf(level) / ratio**2)
    return Outcome(float(f.sf(observed)), float(f.cdf(observed)), observed > 1, float(power))


class Verdict(StrEnum):
    """What we can say on a claim."""

    HOLDS = "holds"
    TOWARDS = "points towards"
    AGAINST = "points against"
    CONTRADICTED = "contradicted"
    UNTESTED = "cannot be tested here"  # with the reason

    @property
    def plural(self) -> str:
        """The verdict on several claims."""
        return self.replace("holds", "hold").replace("points", "point")


def decide(outcome: Outcome, level: float) -> Verdict:
    """Return the verdict of a test: a claim holds if it succeeds.

    It is contradicted if the test of the opposite does.
    """
    if outcome.p < level:
        return Verdict.HOLDS
    if outcome.against < level:
        return Verdict.CONTRADICTED
    return Verdict.TOWARDS if outcome.towards else Verdict.AGAINST


def corrected(outcomes: Sequence[Outcome | None]) -> list[Outcome | None]:
    """Return the outcomes of a family after Holm's correction, of both p-values.

    What cannot be tested yet counts with p = 1, so that claims that hold before it is tested hold
    afterwards.
    """
    sides = [(o.p, o.against) if o else (1.0, 1.0) for o in outcomes]
    adjusted = zip(*map(holm, zip(*sides, strict=True)), strict=True)
    return [
        o and o._replace(p=p, against=against)
        for o, (p, against) in zip(outcomes, adjusted, strict=True)
    ]


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values after Holm's correction for their number."""
    p = pd.Series(p_values, dtype=float).sort_values()
    adjusted = (p * np.arange(len(p), 0, -1)).cummax().clip(upper=1.0)
    return [float(value) for value in adjusted.sort_index()]
