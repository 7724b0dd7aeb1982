"""The lines of a table of runs: the paper's rows in its order, and the runs that belong there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from phantomgrad_suite.report.experiments.runs import Runs, describe
from phantomgrad_suite.report.inputs import SPEED, PaperNumber
from phantomgrad_suite.runs.metrics import Metric, metric_of

_GRADIENT = re.compile(r"(upg|npg)_k(\d+)_d([\d.]+)$")
_REDUCED = "reduced"
_LONG = 60  # letters of a reduction that would stretch its column


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
        dataset: printed name of the data set, like those of ``model``, ``method``, ``params``.
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
    paper_speed: float | None = None
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
    """Return the lines of each block of a table: the folder between table and row, often none."""
    keys = dict.fromkeys(_block(number.row) for number in numbers)
    keys |= dict.fromkeys(sorted(_block(runs.first.row) for runs in groups))
    speeds = {number.row: float(number.value) for number in numbers if number.metric == SPEED}
    blocks = {}
    for key in keys:
        papers = {n.row: n for n in numbers if n.metric != SPEED and _block(n.row) == key}
        mine = [runs for runs in groups if _block(runs.first.row) == key]
        lines = [_measured(runs, papers.get(runs.first.row), mine) for runs in mine]
        compared = {line.row for line in lines if line.paper}
        lines += [_printed(number) for row, number in papers.items() if row not in compared]
        lines = [replace(x, paper_speed=speeds.get(x.row) if x.paper else None) for x in lines]
        lines = _spell([replace(line, speed=_speed(line, lines)) for line in lines], numbers)
        blocks[key] = tuple(sorted(lines, key=lambda line: _order(line, numbers)))
    return blocks


def plain(name: str) -> str:
    """Return the letters and digits of a name in lower case, to compare spellings."""
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def _measured(runs: Runs, number: PaperNumber | None, groups: Sequence[Runs]) -> Line:
    """Return the line of some runs, with the paper's number if they may be compared."""
    label, row = runs.first.label, runs.first.row
    may_compare = (
        number is not None
        and plain(number.dataset) == plain(runs.dataset)
        and number.metric == runs.metric.key
        and not runs.reduction
    )
    return Line(
        row=row,
        dataset=runs.dataset,
        model=number.model if number else label.get("model", ""),
        method=_method(number) if number else label.get("method", row),
        params=number.params
        if number and may_compare
        else _abbreviate(runs.mean("parameters", "total")),
        metric=runs.metric,
        variant=describe(runs, [other for other in groups if other.dataset == runs.dataset]),
        paper=number if may_compare else None,
        runs=runs,
    )


def _printed(number: PaperNumber) -> Line:
    """Return the line of a number of the paper without comparable runs."""
    names = (number.row, number.dataset, number.model, _method(number), number.params)
    return Line(*names, metric_of(number.metric), paper=number)


def _method(number: PaperNumber) -> str:
    """Return the printed method, with the paper's mark where only that distinguishes two rows."""
    return f"{number.method} †" if number.note.startswith("†") else number.method


def _speed(line: Line, lines: Sequence[Line]) -> float | None:
    for other in lines:
        same_data = plain(other.dataset) == plain(line.dataset)
        if same_data and other.paper_speed == 1 and other.runs and line.runs and line.paper_speed:
            reference = other.runs.mean("seconds", "epoch")
            seconds = line.runs.mean("seconds", "epoch")
            if reference and seconds and other.runs.hardware == line.runs.hardware:
                return reference / seconds
    return None


def _spell(lines: Sequence[Line], numbers: Sequence[PaperNumber]) -> list[Line]:
    """Spell data sets as the paper; move a reduction that all runs on one share to a note."""
    spelling = {plain(number.dataset): number.dataset for number in numbers}
    variants: dict[str, set[str]] = {}
    for line in lines:
        if line.runs:
            variants.setdefault(plain(line.dataset), set()).add(line.variant)
    spelled = []
    for line in lines:
        dataset, reduction = plain(line.dataset), line.variant.removeprefix(f"{_REDUCED}: ")
        changed = replace(line, dataset=spelling.get(dataset, line.dataset))
        if reduction != line.variant and len(line.variant) > _LONG and len(variants[dataset]) == 1:
            changed = replace(changed, variant=_REDUCED, shared=reduction)
        spelled.append(changed)
    return spelled


def _order(line: Line, numbers: Sequence[PaperNumber]) -> tuple[object, ...]:
    """Return a key that sorts lines as in the paper, then others; reduced ones come last."""
    datasets = list(dict.fromkeys(plain(number.dataset) for number in numbers))
    rows = list(dict.fromkeys(_leaf(number.row) for number in numbers))
    dataset, leaf = plain(line.dataset), _leaf(line.row)
    return (
        *(datasets.index(dataset) if dataset in datasets else len(datasets), dataset),
        rows.index(leaf) if leaf in rows else len(rows),
        *(not leaf.endswith("implicit"), leaf, line.paper is None, line.variant),
    )


def _block(row: str) -> str:
    return "/".join(row.split("/")[1:-1])


def _leaf(row: str) -> str:
    return row.split("/")[-1]


def _abbreviate(count: float | None) -> str:
    """Return a number of parameters as the paper prints it."""
    if count is None:
        return ""
    scaled, unit = (count / 1e3, "K") if count < 1e6 else (count / 1e6, "M")
    return f"{scaled:.0f}{unit}" if scaled >= 10 else f"{scaled:.1f}{unit}"
