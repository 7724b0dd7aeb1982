"""The numbers printed in the paper, one a line of ``paper.csv``."""

from __future__ import annotations

import csv
from dataclasses import dataclass, fields
from pathlib import Path

from phantomgrad_suite.report.errors import ReportError

SPEED = "speed"


@dataclass(frozen=True)
class PaperNumber:
    """One printed number; every attribute is text as it stands in the file.

    Attributes:
        row: the experiment that reproduces it, for example ``table4/cox2_implicit``.
        table: the first part of ``row``.
        dataset: as printed.
        model: as printed.
        method: as printed, with the phantom gradient of k steps and damping d as ``A(k, d)``.
        params: as printed, for example ``38K``.
        metric: for example ``accuracy``, or ``speed``.
        value: as printed.
        spread: as printed, empty without one.
        unit: ``%``, ``x`` or empty.
        note: what the paper says about this number, empty without.
    """

    row: str
    table: str
    dataset: str
    model: str
    method: str
    params: str
    metric: str
    value: str
    spread: str
    unit: str
    note: str

    @property
    def text(self) -> str:
        """The number as printed, with its spread."""
        return f"{self.value} ± {self.spread}" if self.spread else self.value


def read_paper(path: Path) -> list[PaperNumber]:
    """Read ``paper.csv`` in the order of its lines.

    Raises:
        ReportError: the file is missing, or a line of it is not a number of the paper.
    """
    columns = [f.name for f in fields(PaperNumber)]
    try:
        with path.open(encoding="utf-8", newline="") as file:
            header, *lines = csv.reader(file)
    except (OSError, ValueError) as error:
        raise ReportError(
            f"{path} cannot be read ({error}): restore it from the repository"
        ) from error
    if header != columns:
        raise ReportError(f"{path} must have the columns {','.join(columns)}, got {header}")
    numbers: dict[tuple[str, str], PaperNumber] = {}
    for position, line in enumerate(lines, start=2):
        number = _parse(line, len(columns), f"{path}, line {position}")
        if (number.row, number.metric) in numbers:
            raise ReportError(
                f"{path}, line {position}: {number.row} has its {number.metric} twice"
            )
        numbers[number.row, number.metric] = number
    return list(numbers.values())


def _parse(line: list[str], columns: int, place: str) -> PaperNumber:
    if len(line) != columns:
        raise ReportError(f"{place}: expected {columns} columns, got {len(line)}")
    number = PaperNumber(*line)
    if number.row.split("/")[0] != number.table:
        raise ReportError(f"{place}: row {number.row} is not of table {number.table}")
    try:
        float(number.value), float(number.spread or 0)
    except ValueError as error:
        raise ReportError(f"{place}: value and spread must be numbers ({error})") from error
    return number
