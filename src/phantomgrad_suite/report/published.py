"""Curves that authors released with their runs, to be drawn beside ours."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from phantomgrad_suite.report.errors import ReportError

Curves = Mapping[str, Sequence[Sequence[float]]]
"""By the name that records give a curve: one list a run, one value an epoch."""

_KEYS = ("row", "run", "epoch")


def read_published(path: Path) -> dict[str, Curves]:
    """Read ``published_curves.csv``: by row, the curves of its runs; nothing without the file.

    Its columns are row, run, epoch (from 1, none left out), then one for each curve, in the units
    of a record (accuracies are fractions).

    Raises:
        ReportError: a line of it is not an epoch of a run.
    """
    if not path.is_file():
        return {}
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for line in csv.DictReader(file):
                _add(found.setdefault(line["row"], {}), line)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ReportError(
            f"{path} cannot be read ({error!r}): restore it from the repository"
        ) from error
    return {row: {n: list(runs.values()) for n, runs in c.items()} for row, c in found.items()}


def _add(curves: dict[str, dict[str, list[float]]], line: Mapping[str, str]) -> None:
    for name in [column for column in line if column not in _KEYS]:
        curve = curves.setdefault(name, defaultdict(list))[line["run"]]
        curve.append(float(line[name]))
        if int(line["epoch"]) != len(curve):
            raise ValueError(f"run {line['run']}: epoch {line['epoch']} is number {len(curve)}")
