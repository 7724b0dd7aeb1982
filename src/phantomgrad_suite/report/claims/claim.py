"""The claims as ``results/claims.yaml`` states them, of four kinds."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phantomgrad_suite.report.claims.quantities import QUANTITIES
from phantomgrad_suite.report.inputs import read_yaml
from phantomgrad_suite.runs.errors import UserError

OF_DIFFERENCES = ("greater", "less", "not_worse", "equivalent")
OF_SAMPLES = ("fails_more", "varies_more")
PARTS = ("step", "backward")


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
class StudyClaim(Claim):
    """A claim that holds if all of these ``checks`` of the record ``study`` do."""

    study: str
    checks: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.checks:
            raise ValueError("checks must name at least one check of the study")


@dataclass(frozen=True, kw_only=True)
class SpeedClaim(Claim):
    """A claim that row ``a`` takes less time than row ``b`` in the throughput study ``study``.

    ``part`` is that of a training step, and ``ratio`` the paper's, 1 if it has no number.
    """

    study: str
    rows: dict[str, str]
    part: str
    ratio: float = 1.0

    def __post_init__(self) -> None:
        if set(self.rows) != {"a", "b"}:
            raise ValueError(f"rows must be a mapping of a and b, got {self.rows!r}")
        _check_choice("part", self.part, PARTS)


@dataclass(frozen=True, kw_only=True)
class RunsClaim(Claim):
    """A claim on the difference a - b of a quantity, between runs of one seed and fold.

    ``a`` and ``b`` are rows, whose mean within a seed is compared; without ``b`` it is 0. ``folds``
    is their number, 0 without any. The power is stated for ``effect``. ``printed`` is the paper's
    difference, by default ``effect`` on the side of the claim.
    """

    a: tuple[str, ...]
    b: tuple[str, ...] = ()
    quantity: str
    test: str
    seeds: int
    folds: int = 0
    effect: float | None = None
    printed: float | None = None

    def __post_init__(self) -> None:
        _check_choice("quantity", self.quantity, tuple(QUANTITIES))
        _check_choice("test", self.test, (*OF_DIFFERENCES, *OF_SAMPLES))
        if self.b and len(self.a) != len(self.b):
            sizes = f"{len(self.a)} and {len(self.b)}"
            raise ValueError(f"a and b must have the same number of rows, got {sizes}")
        if self.n < 2 or self.folds == 1:
            raise ValueError(
                "seeds must be at least 2, or folds, which are averaged over seeds, got "
                f"seeds={self.seeds} and folds={self.folds}"
            )
        if self.test in ("equivalent", "not_worse") and not QUANTITIES[self.quantity].has_margin:
            raise ValueError(
                f"test must be greater or less for {self.quantity}, which has no margin, "
                f"got {self.test}"
            )
        if self.test in OF_SAMPLES and (len(self.a) != 1 or len(self.b) != 1 or self.folds):
            raise ValueError(f"{self.test} compares the runs of a row a with those of a row b")
        if self.test == "fails_more" and self.quantity not in ("last", "best"):
            raise ValueError(f"quantity of fails_more must be last or best, got {self.quantity!r}")
        if self.test == "fails_more" and not 0 < self.share <= 1:
            raise ValueError(f"effect of fails_more is a share up to 100 %, got {self.effect}")
        if self.test == "varies_more" and not self.ratio > 1:
            raise ValueError(
                "effect of varies_more is a ratio of standard deviations above 1, "
                f"got {self.effect}"
            )

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

    @property
    def share(self) -> float:
        """The share of runs of ``a`` that fail, for which the power of fails_more is stated."""
        return 1.0 if self.effect is None else self.effect / 100

    @property
    def ratio(self) -> float:
        """The standard deviations' ratio for which the power of varies_more is stated."""
        return 2.0 if self.effect is None else self.effect


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

    def __post_init__(self) -> None:
        if not 0 < self.level < 1:
            raise ValueError(f"level must be between 0 and 1, got {self.level!r}")

    @property
    def claims(self) -> tuple[Claim, ...]:
        return self.primary + self.secondary


def read_claims(path: Path) -> tuple[float, list[Family]]:
    """Return the margin and the families of claims; a :class:`UserError` names a wrong family."""
    content, families = read_yaml(path), []
    for name in ("margin", "level"):
        if not isinstance(content.get(name), int | float):
            raise UserError(f"{path}: {name} must be a number, got {content.get(name)!r}")
    if not isinstance(found := content.get("families"), dict):
        raise UserError(f"{path}: families must be a mapping, got {found!r}")
    for key, family in found.items():
        try:
            claims = {n: tuple(map(_claim, family.get(n) or ())) for n in ("primary", "secondary")}
            families.append(Family(**{"level": content["level"], **family, **claims}))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UserError(f"{path}, a claim of {key} cannot be used: {error}") from error
    return content["margin"], families


def _claim(item: dict[str, Any]) -> Claim:
    """Return a claim from its entry, whose keys tell its kind."""
    content = {**item, "paper": str(item["paper"])}
    for key in {"a", "b", "checks"} & item.keys():  # one or a list
        content[key] = tuple(item[key]) if isinstance(item[key], list) else (item[key],)
    if "untestable" in content:
        return Untestable(**content)
    if "rows" in content:
        return SpeedClaim(**content)
    return StudyClaim(**content) if "study" in content else RunsClaim(**content)


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
