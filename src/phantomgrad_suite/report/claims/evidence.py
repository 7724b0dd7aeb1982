"""What the records say on a claim, before the verdicts of its family."""

import math
from typing import Any, NamedTuple

from phantomgrad_suite.report.claims.inference import Outcome
from phantomgrad_suite.report.claims.verdicts import Finding, Verdict


class Shown(NamedTuple):
    """The numbers that a table shows, as text."""

    ours: str = ""
    difference: str = ""
    interval: str = ""
    n: str = ""


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


_NOTHING = Shown()


class Evidence(NamedTuple):
    """The outcome of a test, which its family corrects, or a finding without one."""

    result: Outcome | Finding
    shown: Shown = _NOTHING
    effect: Effect | None = None  # none if it has no common unit

    @classmethod
    def untested(cls, reason: str, *shown: Any) -> "Evidence":
        """Return that of a claim that cannot be tested here, with what is ``shown`` of it."""
        return cls(Finding(Verdict.UNTESTED, reason=reason), *shown)


def signed(value: float, decimals: int = 2) -> str:
    """Return a number with its sign; empty if it is not finite."""
    return f"{value:+.{decimals}f}" if math.isfinite(value) else ""
