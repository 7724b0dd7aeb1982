"""The inputs of the report: records, the paper's numbers, the authors' curves."""

import csv
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from phantomgrad_suite.runs.configs import CONFIGS, folders
from phantomgrad_suite.runs.errors import UserError

SPEED = "speed"
_UNITS = {"accuracy": "%", "micro_f1": "%", "perplexity": "", SPEED: "x"}  # by metric
_AS_PRINTED = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # 85.0 stays the text "85.0"
_KEYS = ("row", "run", "epoch")  # the columns of published_curves.csv before those of curves
Curves = Mapping[str, Sequence[Sequence[float]]]
"""By the name of the curve in a record: a list for each run, with a value for each epoch."""


@dataclass(frozen=True)
class PaperNumber:
    """A number printed in the paper, under ``paper`` in the file of its row, all as printed."""

    row: str  # the experiment that reproduces it, for example table4/cox2_implicit
    table: str  # the first part of the row
    dataset: str
    model: str
    method: str  # with A(k, d) for the phantom gradient of k steps and damping d
    params: str
    metric: str  # for example accuracy or speed
    value: str
    spread: str  # empty if there is none, as are unit and note
    unit: str
    note: str

    @property
    def text(self) -> str:
        return f"{self.value} ± {self.spread}" if self.spread else self.value


def read_paper(configs: Path = CONFIGS) -> list[PaperNumber]:
    """Return the numbers under ``paper`` in the files of all rows, in the order of print.

    Rows that inherit from a row do not inherit its number. A :class:`UserError` names a wrong file.
    """
    return [number for number, _ in _printed(folders(configs))]


@cache
def _printed(places: tuple[Path, ...]) -> list[tuple[PaperNumber, int]]:
    rows = {
        path.relative_to(place / "experiment").with_suffix("").as_posix(): path
        for place in places
        for path in place.glob("experiment/**/*.yaml")
    }
    found = [each for row, path in rows.items() for each in _of_row(row, path)]
    return sorted(found, key=lambda each: (each[0].table, each[1]))


def _of_row(row: str, path: Path) -> Iterator[tuple[PaperNumber, int]]:
    """Yield the numbers of a row, each with its line in the printed table."""
    text = path.read_text(encoding="utf-8")
    if not re.search("^paper:", text, re.MULTILINE):
        return
    entry = yaml.load(text, _AS_PRINTED)["paper"]
    try:
        line, values = int(entry.pop("line")), {m: entry.pop(m) for m in _UNITS if m in entry}
        for metric, value in values.items():
            spread = "" if metric == SPEED else entry.get("spread", "")
            note = "" if metric == SPEED else entry.get("note", "")
            more = {**entry, "spread": spread, "note": note, "unit": _UNITS[metric]}
            float(value), float(spread or 0)
            table = row.partition("/")[0]
            yield PaperNumber(row=row, table=table, metric=metric, value=value, **more), line
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path}: `paper` cannot be used: {error}") from error


def read_published(path: Path) -> dict[str, Curves]:
    """Read ``published_curves.csv``: the curves that authors published, by row.

    Its columns are row, run, epoch (counted from 1, without gaps), then one for each curve in the
    units of a record (accuracies are fractions). Without the file there are none; a
    :class:`UserError` names a missing column, or a wrong line.
    """
    if not path.is_file():
        return {}
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        lines = csv.DictReader(file)
        if not set(_KEYS) <= set(columns := lines.fieldnames or ()):
            raise UserError(
                f"{path} must have the columns {', '.join(_KEYS)}, got {', '.join(columns)}"
            )
        for line in lines:
            row, run, _ = (line.pop(name) for name in _KEYS)
            for name, value in line.items():
                curves = found.setdefault(row, {}).setdefault(name, defaultdict(list))
                try:
                    curves[run].append(float(value))
                except (TypeError, ValueError) as error:
                    place = f"{path}, line {lines.line_num}: {name}"
                    raise UserError(f"{place} must be a number, got {value!r}") from error
    return {row: {n: list(runs.values()) for n, runs in c.items()} for row, c in found.items()}


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the content of a YAML file, which must be a mapping; an empty file is one."""
    text, loader = path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    content = yaml.load(text, loader) or {}
    if not isinstance(content, dict):
        raise UserError(f"{path} must be a mapping, got {content!r}")
    return content
