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
        _check(set(self.rows) == {"a", "b"}, f"rows must be those of a and b, got {self.rows}")
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
        alone = len(self.a) == len(self.b) == 1 and not self.folds
        rules = {
            "a and b must have the same number of rows": not self.b or len(self.a) == len(self.b),
            "seeds, or folds, must be at least 2": self.n > 1,
            f"{self.quantity} has no margin: test must be greater or less": (
                QUANTITIES[self.quantity].has_margin or self.test not in ("equivalent", "not_worse")
            ),
            f"{self.test} compares the runs of one row a with those of one row b": (
                alone or self.test not in OF_SAMPLES
            ),
            "quantity of fails_more must be last or best": (
                self.test != "fails_more" or self.quantity in ("last", "best")
            ),
        }
        for rule, is_met in rules.items():
            _check(is_met, rule)

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

    def __post_init__(self) -> None:
        _check(0 < self.level < 1, f"level must be between 0 and 1, got {self.level!r}")


def read_claims(path: Path) -> tuple[float, list[Family]]:
    """Return the margin and the families of claims; a :class:`UserError` names a wrong family."""
    content, families = read_yaml(path), []
    for name, kind in (("margin", int | float), ("level", int | float), ("families", dict)):
        if not isinstance(found := content.get(name), kind):
            wanted = "a mapping" if kind is dict else "a number"
            raise UserError(f"{path}: {name} must be {wanted}, got {found!r}")
    for key, family in content["families"].items():
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
    kinds = {"untestable": Untestable, "rows": SpeedClaim, "study": StudyClaim}
    kind: type[Claim] = next((kinds[key] for key in kinds if key in item), RunsClaim)
    return kind(**content)


def _check(right: bool, message: str) -> None:
    if not right:
        raise ValueError(message)


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    _check(value in choices, f"{name} must be one of {', '.join(choices)}, got {value!r}")
