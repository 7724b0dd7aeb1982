"""The inputs of the report: records, the paper's numbers, authors' curves, and stopped runs."""

import csv
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TypeVar

import yaml

from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.records import Record, Result, StudyRecord

SPEED = "speed"
Curves = Mapping[str, Sequence[Sequence[float]]]
"""By the name of the curve in a record: a list for each run, with a value for each epoch."""

_AnyRecord = TypeVar("_AnyRecord", Record, StudyRecord)


@dataclass(frozen=True)
class PaperNumber:
    """A number printed in the paper: a line of ``paper.csv``, all of it as printed."""

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


@dataclass(frozen=True, kw_only=True)
class StoppedRun:
    """A run that a NaN or infinite gradient has stopped: it has no record, this is entered by hand.

    ``guess`` is the value of a uniform guess in the unit of a record: claims count the run as one.
    """

    row: str
    instance: str
    epoch: int
    step: int
    revision: str
    metric: str
    guess: float

    @property
    def result(self) -> Result:
        return Result(self.metric, self.guess, self.epoch, self.guess)


def read_paper(path: Path) -> list[PaperNumber]:
    """Read ``paper.csv``, in the order of its lines; a :class:`UserError` names a wrong one."""
    columns = [f.name for f in fields(PaperNumber)]
    try:
        with path.open(encoding="utf-8", newline="") as file:
            header, *lines = csv.reader(file)
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} cannot be read ({error}): restore it from the repository"
        ) from error
    if header != columns:
        raise UserError(f"{path} must have the columns {','.join(columns)}, got {header}")
    numbers: dict[tuple[str, str], PaperNumber] = {}
    for position, line in enumerate(lines, start=2):
        place = f"{path}, line {position}"
        if len(line) != len(columns):
            raise UserError(f"{place}: expected {len(columns)} columns, got {len(line)}")
        number = PaperNumber(*line)
        if number.row.split("/")[0] != number.table:
            raise UserError(f"{place}: row {number.row} does not belong to table {number.table}")
        try:
            float(number.value), float(number.spread or 0)
        except ValueError as error:
            raise UserError(f"{place}: value and spread must be numbers ({error})") from error
        if (number.row, number.metric) in numbers:
            raise UserError(f"{place}: {number.row} already has a {number.metric}")
        numbers[number.row, number.metric] = number
    return list(numbers.values())


def read_published(path: Path) -> dict[str, Curves]:
    """Read ``published_curves.csv``: the curves that authors published, by row.

    Its columns are row, run, epoch (counted from 1, without gaps), then one for each curve in the
    units of a record (accuracies are fractions). Without the file there are none.
    """
    if not path.is_file():
        return {}
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for line in csv.DictReader(file):
                row, run, epoch = (line.pop(name) for name in ("row", "run", "epoch"))
                for name, value in line.items():
                    curves = found.setdefault(row, {}).setdefault(name, defaultdict(list))
                    curves[run].append(float(value))
                    if int(epoch) != len(curves[run]):
                        raise ValueError(f"run {run}: epoch {epoch} is number {len(curves[run])}")
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{path} cannot be read ({error!r}): restore it from the repository"
        ) from error
    return {row: {n: list(runs.values()) for n, runs in c.items()} for row, c in found.items()}


def read_stopped(results: Path) -> list[StoppedRun]:
    """Read the entries ``stopped`` of ``claims.yaml``; without the file there are none."""
    path = results / "claims.yaml"
    try:
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        content = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)) or {}
        runs = [StoppedRun(**entry) for entry in content.get("stopped") or ()]
        for run in runs:
            if (results / "records" / run.row / f"{run.instance}.json").is_file():
                raise ValueError(f"stopped: {run.row}/{run.instance} has a record")
        return runs
    except (OSError, yaml.YAMLError, AttributeError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split()).replace("StoppedRun.__init__() ", "stopped: ")
        raise UserError(f"{path} cannot be used: {reason}") from error


def read_all(folder: Path, table: str, read: Callable[[Path], _AnyRecord]) -> list[_AnyRecord]:
    """Read the records ``<folder>/<table>/**.json``; a :class:`UserError` names a wrong file."""
    records = []
    for path in sorted((folder / table).rglob("*.json")):
        record = read(path)
        if path != folder / record.row / f"{record.instance}.json":
            raise UserError(
                f"{path} holds the record of {record.row}/{record.instance}: move it there"
            )
        records.append(record)
    return records
