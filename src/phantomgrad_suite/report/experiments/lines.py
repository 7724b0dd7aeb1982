"""The lines of a table of runs: the paper's rows in its order, and the runs that belong there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from phantomgrad_suite.report.experiments.runs import Runs, describe
from phantomgrad_suite.report.inputs import SPEED, PaperNumber
from phantomgrad_suite.runs.metrics import Metric, metric_of

_REDUCED, _LONG = "reduced", 60  # letters of a description that would stretch its column
_GRADIENT = re.compile(r"(upg|npg)_k(\d+)_d([\d.]+)$")


class Gradient(NamedTuple):
    """A phantom gradient: ``UPG`` or ``NPG``, k and λ."""

    form: str
    steps: int
    damping: float


@dataclass(frozen=True)
class Line:
    """An experiment: its runs, the paper's number, or both.

    Attributes:
        row: for example ``table4/cox2_implicit``.
        dataset: printed name of the data set.
        model: printed name.
        method: printed name.
        params: printed number of parameters.
        metric: what is measured.
        variant: how the runs differ from the full protocol or from other lines of the row.
        shared: a long reduction that all runs on the data set share, printed once as a note.
        paper: the paper's number, if the runs may be compared with it or are missing.
        paper_speed: the paper's speed, likewise.
        speed: how many times faster an epoch is than one of the reference, the row of the data
            set whose printed speed is 1.0; only if both ran on the same hardware.
        runs: ``None`` where they are missing.
    """

    row: str
    dataset: str
    model: str
    method: str
    params: str
    metric: Metric
    variant: str = ""
    shared: str = ""
    paper: PaperNumber | None = None
    paper_speed: PaperNumber | None = None
    speed: float | None = None
    runs: Runs | None = None

    @property
    def name(self) -> str:
        """The method, and how the runs differ from others."""
        return f"{self.method} [{self.variant}]" if self.variant else self.method

    @property
    def gradient(self) -> Gradient | None:
        """The phantom gradient that the name of the row ends with, if it does."""
        match = _GRADIENT.search(self.row)
        return Gradient(match[1].upper(), int(match[2]), float(match[3])) if match else None

    @property
    def is_full(self) -> bool:
        """Whether there are runs of the full protocol."""
        return self.runs is not None and self.runs.first.protocol == "full"


def lines_by_block(
    numbers: Sequence[PaperNumber], groups: Sequence[Runs]
) -> dict[str, tuple[Line, ...]]:
    """Return the lines of each block of a table: the folder between table and row, often none.

    Args:
        numbers: the paper's numbers of the table.
        groups: the runs of the table.
    """
    keys = dict.fromkeys(_block(number.row) for number in numbers)
    keys |= dict.fromkeys(sorted(_block(runs.first.row) for runs in groups))
    spelling = {plain(number.dataset): number.dataset for number in numbers}
    blocks = {}
    for key in keys:
        papers = {n.row: n for n in numbers if n.metric != SPEED and _block(n.row) == key}
        speeds = {n.row: n for n in numbers if n.metric == SPEED}
        mine = [runs for runs in groups if _block(runs.first.row) == key]
        lines = [_measured(runs, papers.get(runs.first.row), speeds, mine) for runs in mine]
        lines = [replace(x, dataset=spelling.get(plain(x.dataset), x.dataset)) for x in lines]
        compared = {line.row for line in lines if line.paper}
        lines += [_printed(n, speeds) for row, n in papers.items() if row not in compared]
        lines = _shorten([replace(line, speed=_speed(line, lines)) for line in lines])
        blocks[key] = tuple(sorted(lines, key=lambda line: _order(line, numbers)))
    return blocks


def plain(name: str) -> str:
    """Return the letters and digits of a name in lower case, to compare spellings."""
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def _measured(
    runs: Runs, number: PaperNumber | None, speeds: dict[str, PaperNumber], groups: Sequence[Runs]
) -> Line:
    """Return the line of some runs, with the paper's number if they may be compared."""
    label, row = runs.first.label, runs.first.row
    paper = number
    if number and (
        plain(number.dataset) != plain(runs.dataset)
        or number.metric != runs.metric.key
        or runs.reduction
    ):
        paper = None
    return Line(
        row=row,
        dataset=runs.dataset,
        model=number.model if number else label.get("model", ""),
        method=_method(number) if number else label.get("method", row),
        params=paper.params if paper else _abbreviate(runs.mean("parameters", "total")),
        metric=runs.metric,
        variant=describe(runs, [other for other in groups if other.dataset == runs.dataset]),
        paper=paper,
        paper_speed=speeds.get(row) if paper else None,
        runs=runs,
    )


def _printed(number: PaperNumber, speeds: dict[str, PaperNumber]) -> Line:
    """Return the line of a number of the paper without comparable runs."""
    return Line(
        *(number.row, number.dataset, number.model, _method(number), number.params),
        metric_of(number.metric),
        paper=number,
        paper_speed=speeds.get(number.row),
    )


def _method(number: PaperNumber) -> str:
    """Return the printed method, with the paper's mark where only that distinguishes two rows."""
    return f"{number.method} †" if number.note.startswith("†") else number.method


def _speed(line: Line, lines: Sequence[Line]) -> float | None:
    for reference in lines:
        if (
            reference.dataset == line.dataset
            and reference.runs is not None
            and reference.paper_speed is not None
            and float(reference.paper_speed.value) == 1
            and line.runs is not None
            and line.paper_speed is not None
        ):
            seconds = [runs.mean("seconds", "epoch") for runs in (reference.runs, line.runs)]
            same_hardware = reference.runs.hardware == line.runs.hardware
            return seconds[0] / seconds[1] if same_hardware and all(seconds) else None  # type: ignore[operator]
    return None


def _shorten(lines: Sequence[Line]) -> list[Line]:
    """Move a long reduction that all runs on a data set share to a note."""
    variants: dict[str, set[str]] = {}
    for line in lines:
        if line.runs:
            variants.setdefault(line.dataset, set()).add(line.variant)
    return [
        replace(line, variant=_REDUCED, shared=line.variant.removeprefix(f"{_REDUCED}: "))
        if len(line.variant) > _LONG
        and line.variant.startswith(f"{_REDUCED}: ")
        and len(variants[line.dataset]) == 1
        else line
        for line in lines
    ]


def _order(line: Line, numbers: Sequence[PaperNumber]) -> tuple[object, ...]:
    """Return a key that sorts lines as in the paper, then others; reduced ones come last."""
    datasets = list(dict.fromkeys(plain(number.dataset) for number in numbers))
    rows = list(dict.fromkeys(_leaf(number.row) for number in numbers))
    dataset, leaf = plain(line.dataset), _leaf(line.row)
    return (
        datasets.index(dataset) if dataset in datasets else len(datasets),
        dataset,
        rows.index(leaf) if leaf in rows else len(rows),
        not leaf.endswith("implicit"),
        leaf,
        line.paper is None,
        line.variant,
    )


def _block(row: str) -> str:
    return "/".join(row.split("/")[1:-1])


def _leaf(row: str) -> str:
    return row.split("/")[-1]


def _abbreviate(count: float | None) -> str:
    """Return a number of parameters as the paper prints it."""
    if count is None:
        return ""
    if count < 1e6:
        return f"{count / 1e3:.0f}K" if count >= 1e4 else f"{count / 1e3:.1f}K"
    return f"{count / 1e6:.0f}M" if count >= 1e7 else f"{count / 1e6:.1f}M"
