"""Five verdicts, and how a family of claims gets them from its tests."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from phantomgrad_suite.report.claims.inference import Outcome


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


class Finding(NamedTuple):
    """The verdict on a claim, the p-value behind it, if any, and why it cannot be tested."""

    verdict: Verdict
    p: float | None = None
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.verdict} ({self.reason})" if self.reason else str(self.verdict)


def decide(result: Outcome | Finding, level: float) -> Finding:
    """Return the finding of a test: a claim holds if it succeeds.

    It is contradicted if the test of the opposite does. A finding is returned as it is.
    """
    if isinstance(result, Finding):
        return result
    if result.p < level:
        return Finding(Verdict.HOLDS, result.p)
    if result.against < level:
        return Finding(Verdict.CONTRADICTED, result.p)
    return Finding(Verdict.TOWARDS if result.towards else Verdict.AGAINST, result.p)


def corrected(results: Sequence[Outcome | Finding]) -> list[Outcome | Finding]:
    """Return the results of a family after Holm's correction, of both p-values.

    What cannot be tested yet counts with p = 1, so that claims that hold before it is tested hold
    afterwards.
    """
    sides = [
        holm([result[side] if isinstance(result, Outcome) else 1.0 for result in results])
        for side in (0, 1)
    ]
    return [
        result._replace(p=p, against=against) if isinstance(result, Outcome) else result
        for result, p, against in zip(results, *sides, strict=True)
    ]


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values after Holm's correction for their number."""
    adjusted, largest = [1.0] * len(p_values), 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = largest
    return adjusted
