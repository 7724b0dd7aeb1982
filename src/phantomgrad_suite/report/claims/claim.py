"""The claims as ``results/claims.yaml`` states them, of three kinds."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from phantomgrad_suite.report.claims.quantities import QUANTITIES
from phantomgrad_suite.runs.configs import read_yaml
from phantomgrad_suite.runs.errors import UserError

TESTS = ("greater", "less", "not_worse", "equivalent", "fails_more", "varies_more")


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What a paper says, and where; ``paper`` are its numbers as text."""

    claim: str
    place: str
    paper: str
    words: str = ""


@dataclass(frozen=True, kw_only=True)
class Untestable(Claim):
    """A claim that cannot be tested here, for the reason that ``untestable`` states."""

    untestable: str


@dataclass(frozen=True, kw_only=True)
class SpeedClaim(Claim):
    """A claim that row ``a`` takes less time than row ``b`` in the throughput study ``study``.

    ``part`` is that of a training step, and ``ratio`` the paper's, 1 if it has no number.
    """

    study: str
    a: str
    b: str
    part: Literal["step", "backward"]
    ratio: float = 1.0

    def __post_init__(self) -> None:
        _check_known("part", self.part, ("step", "backward"))


@dataclass(frozen=True, kw_only=True)
class RunsClaim(Claim):
    """A claim on the difference a - b of a quantity, between runs of one seed and fold.

    ``a`` and ``b`` are rows, whose mean within a seed is compared; without ``b`` it is 0. ``folds``
    is their number, 0 without any. The power is stated for ``effect``, the paper's difference.
    ``margin`` is that of the test, if it is not that of all claims. Rows that ``may_fail``, since
    the claim says that they are bad, need not beat a baseline.
    """

    a: tuple[str, ...]
    b: tuple[str, ...] = ()
    quantity: str
    test: str
    seeds: int
    folds: int = 0
    effect: float | None = None
    margin: float | None = None
    may_fail: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_known("quantity", self.quantity, QUANTITIES)
        for row in self.may_fail:
            _check_known("may_fail", row, self.rows)
        if self.quantity == "diverged" and self.test != "fails_more":
            raise ValueError(f"quantity=diverged needs test=fails_more, got {self.test}")
        _check_known("test", self.test, TESTS)
        if self.b and len(self.b) != len(self.a):
            raise ValueError(f"b must have as many rows as a ({len(self.a)}), got {len(self.b)}")
        if self.test == "fails_more" and len(self.a) > 1:
            raise ValueError(f"test=fails_more compares one row with one, got {len(self.a)} as a")
        if not self.b and self.test in ("fails_more", "varies_more"):
            raise ValueError(f"test={self.test} needs b, the rows to compare with")

    @property
    def rows(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.a + self.b))

    @property
    def n(self) -> int:
        """The number of independent units: folds, or else seeds."""
        return self.folds or self.seeds

    @property
    def instances(self) -> int:
        """The number of runs of a row."""
        return self.seeds * max(1, self.folds)


@dataclass(frozen=True, kw_only=True)
class Family:
    """Claims that are judged together: Holm's correction is over the ``primary`` ones.

    ``source`` is whose claims they are, ``note`` what a reader must know of how they were asked,
    and ``level`` that of each test, less where a part of it was spent at an earlier look.
    """

    title: str
    source: str
    level: float
    note: str = ""
    primary: tuple[Claim, ...] = ()
    secondary: tuple[Claim, ...] = ()


def read_claims(path: Path) -> tuple[float, list[Family]]:
    """Return the margin and the families of claims; a :class:`UserError` names a wrong family."""
    content, families = read_yaml(path), []
    if missing := {"margin", "level", "families"} - content.keys():
        raise UserError(f"{path} lacks {', '.join(sorted(missing))}")
    for key, family in content["families"].items():
        try:
            claims = {n: tuple(map(_claim, family.get(n) or ())) for n in ("primary", "secondary")}
            families.append(Family(**{"level": content["level"], **family, **claims}))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UserError(f"{path}, a claim of {key} cannot be used: {error}") from error
    return content["margin"], families


def _check_known(name: str, value: str, known: Collection[str]) -> None:
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")


def _claim(item: dict[str, Any]) -> Claim:
    """Return a claim from its entry, whose keys tell its kind."""
    content = {**item, "paper": str(item["paper"])}
    if "untestable" in item:
        return Untestable(**content)
    if "study" in item:
        return SpeedClaim(**content)
    for side in {"a", "b", "may_fail"} & item.keys():  # one row or a list
        content[side] = tuple(item[side]) if isinstance(item[side], list) else (item[side],)
    return RunsClaim(**content)
