"""The claims as ``results/claims.yaml`` states them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from phantomgrad_suite.report.claims.quantities import QUANTITIES
from phantomgrad_suite.report.claims.verdicts import TESTS
from phantomgrad_suite.report.inputs import read_yaml
from phantomgrad_suite.runs.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim: the paper's words, and the comparison of runs that tests it.

    ``a`` and ``b`` are rows, paired by their place; without ``b`` the quantity of ``a`` is tested
    against 0. ``folds`` is their number, 0 without any.
    """

    claim: str
    place: str
    paper: str
    a: tuple[str, ...]
    quantity: str
    test: str
    seeds: int
    b: tuple[str, ...] = ()
    words: str = ""
    folds: int = 0

    def __post_init__(self) -> None:
        for name, choices in (("quantity", tuple(QUANTITIES)), ("test", TESTS)):
            if (value := getattr(self, name)) not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
        if self.b and len(self.a) != len(self.b):
            sizes = f"{len(self.a)} and {len(self.b)}"
            raise ValueError(f"a and b must have the same number of rows, got {sizes}")
        if self.pairs < 2 or self.folds == 1:
            raise ValueError(
                "rows x seeds x folds must give at least 2 pairs of runs, and folds must be 0 or "
                f"at least 2, got {self.pairs} pairs and folds={self.folds}"
            )
        if self.test in ("equivalent", "not_worse") and not QUANTITIES[self.quantity].has_margin:
            raise ValueError(
                f"test must be greater or less for {self.quantity}, which has no margin, "
                f"got {self.test}"
            )

    @property
    def rows(self) -> tuple[str, ...]:
        return self.a + self.b

    @property
    def instances(self) -> int:
        """The number of runs of a row."""
        return self.seeds * max(1, self.folds)

    @property
    def pairs(self) -> int:
        return len(self.a) * self.instances


class Family(NamedTuple):
    """Claims whose p-values are corrected together; ``source`` is whose they are."""

    title: str
    source: str
    claims: tuple[Claim, ...]


def read_claims(path: Path) -> tuple[float, list[Family]]:
    """Return the margin and the families of claims; a :class:`UserError` names a wrong family."""
    content, families = read_yaml(path), []
    if not isinstance(found := content.get("families"), dict):
        raise UserError(f"{path}: families must be a mapping, got {found!r}")
    for key, family in found.items():
        try:
            claims = tuple(map(_claim, family["claims"]))
            families.append(Family(family["title"], family["source"], claims))
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{path}, a claim of {key} cannot be used: {error}") from error
    if not isinstance(margin := content.get("margin"), int | float):
        raise UserError(f"{path}: margin must be a number, got {margin!r}")
    return margin, families


def _claim(item: dict[str, Any]) -> Claim:
    """Return a claim from its entry, where ``a`` and ``b`` are a row or a list of rows."""
    for key in {"a", "b"} & item.keys():
        rows = [item[key]] if isinstance(item[key], str) else item[key]
        item[key] = tuple(map(str, rows))
    return Claim(**item)
