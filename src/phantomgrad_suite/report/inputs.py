"""The numbers that the paper prints, in the files of the rows that reproduce them."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from phantomgrad_suite.runs.configs import folders
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.metrics import METRICS

_AS_PRINTED = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # 85.0 stays the text "85.0"


@dataclass(frozen=True)
class PaperNumber:
    """A result printed in the paper, under ``paper`` in the file of its row, all as printed."""

    row: str  # the experiment that reproduces it, for example table4/cox2_implicit
    table: str  # the first part of the row
    line: int  # of the printed table
    dataset: str
    model: str
    method: str  # with A(k, d) for the phantom gradient of k steps and damping d
    params: str
    metric: str  # for example accuracy
    value: str
    spread: str = ""
    speed: str = ""  # how many times as fast as the reference
    note: str = ""

    @property
    def text(self) -> str:
        return f"{self.value} ± {self.spread}" if self.spread else self.value


def read_paper() -> list[PaperNumber]:
    """Return the numbers under ``paper`` in the files of all rows, in the order of print.

    Rows that inherit from a row do not inherit its number. A :class:`UserError` names a wrong file.
    """
    return list(_printed(folders()))


@cache
def _printed(places: tuple[Path, ...]) -> tuple[PaperNumber, ...]:
    rows = {
        path.relative_to(place / "experiment").with_suffix("").as_posix(): path
        for place in places
        for path in place.glob("experiment/**/*.yaml")
    }
    found = [number for row, path in rows.items() if (number := _of_row(row, path))]
    return tuple(sorted(found, key=lambda number: (number.table, number.line)))


def _of_row(row: str, path: Path) -> PaperNumber | None:
    text = path.read_text(encoding="utf-8")
    if not re.search("^paper:", text, re.MULTILINE):
        return None
    try:
        entry = dict(yaml.load(text, _AS_PRINTED)["paper"])
        metrics = METRICS.keys() & entry.keys()
        if len(metrics) != 1:
            raise ValueError(f"it needs one of {', '.join(METRICS)}, got {', '.join(entry)}")
        (metric,) = metrics
        entry |= {"metric": metric, "value": entry.pop(metric), "line": int(entry["line"])}
        number = PaperNumber(row, row.partition("/")[0], **entry)
        float(number.value), float(number.spread or 0), float(number.speed or 0)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path}: `paper` cannot be used: {error}") from error
    return number
