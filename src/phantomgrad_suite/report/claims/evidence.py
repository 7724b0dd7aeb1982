"""What the records say on a claim, before the verdicts of its family."""

import math
from typing import NamedTuple

from phantomgrad_suite.report.claims.inference import Outcome
from phantomgrad_suite.report.claims.verdicts import Finding, Verdict


class Shown(NamedTuple):
    """The numbers that a table shows, as text."""

    ours: str = ""
    difference: str = ""
    interval: str = ""
    n: str = ""


_NOTHING = Shown()


class Evidence(NamedTuple):
    """The outcome of a test, which its family corrects, or a finding without one."""

    result: Outcome | Finding
    shown: Shown = _NOTHING

    @classmethod
    def untested(cls, reason: str, shown: Shown = _NOTHING) -> "Evidence":
        """Return that of a claim that cannot be tested here."""
        return cls(Finding(Verdict.UNTESTED, reason=reason), shown)


def signed(value: float, decimals: int = 2) -> str:
    """Return a number with its sign; empty if it is not finite."""
    return f"{value:+.{decimals}f}" if math.isfinite(value) else ""
