"""The figures of runs: the values of a table, curves by epoch, and what training measured."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from phantomgrad_suite.report.catalogue import BLOCKS, FIGURES
from phantomgrad_suite.report.experiments.along_training import (
    RADII,
    STEP,
    estimator_of,
    measured_lines,
)
from phantomgrad_suite.report.experiments.lines import Line
from phantomgrad_suite.report.figures.plot import Curve, Plot, file_name
from phantomgrad_suite.report.table import Block, Table
from phantomgrad_suite.runs.identity import SCALES, split_row

# The columns that are drawn, from top to bottom, and their labels.
_DOTS = {
    "Paper": "paper",
    "Best": "best epoch of each run",
    "Last": "last epoch",
    "Selected": "epoch selected on validation data",
}
_Values = Sequence[float]
_DODGE = 0.19  # between the values of a row
_LOSS = "train/loss"
_MANY = 6  # curves in a panel
_CONFOUNDED = "swapped"  # rows that differ in more than the gradient are compared with others only


def of_runs(table: Table) -> Iterator[Plot]:
    """Yield all values, the curves of each block, and what training measured."""
    for scale in ("", *SCALES):
        yield from _values(table, scale)
    for block in table.blocks:
        if not block.key.endswith(_CONFOUNDED):
            yield from _by_epoch(table, block)
    yield from along_training(table)


def _values(table: Table, scale: str) -> Iterator[Plot]:
    """Yield the values of all rows: a panel for each data set and block with runs of ours."""
    curves, hidden = list[Curve](), False
    places: dict[tuple[str, str], list[str]] = {}
    for block in (block for block in table.blocks if split_row(block.key)[0] == scale):
        measured = {line.dataset for _, line in block.experiments if line.runs}
        for row, line in (pair for pair in block.experiments if pair[1].dataset in measured):
            panel = f"{line.dataset}: {line.metric.heading}", block.title
            names = places.setdefault(panel, [])
            found = {label: row.number(heading) for heading, label in _DOTS.items()}
            if row.text("Best") == row.text("Last") and found.pop(_DOTS["Best"]):
                hidden = True
            cells = [(label, cell) for label, cell in found.items() if cell]
            for i, (label, (value, spread)) in enumerate(cells):
                y = len(names) + _DODGE * (i - (len(cells) - 1) / 2)
                most = 100.0 if line.metric.unit == "%" else np.inf
                band = ([value - spread], [min(value + spread, most)]) if spread else None
                curves.append(Curve(label, [value], [y], *panel, band))
            names.append(label_of(line, table.lines))
    notes = ["whiskers: ± one standard deviation"] if any(curve.band for curve in curves) else []
    notes += ["best epochs are not drawn where they are the last ones"] if hidden else []
    curves.sort(key=lambda curve: [*_DOTS.values()].index(curve.label))
    about = file_name(table.key, scale), FIGURES["dots"], table.title
    if curves:
        yield Plot(*about, curves, note="; ".join(notes), places=places)


def title_of(table: Table, line: Line) -> str:
    """Return the title of a figure of one data set."""
    return ", ".join(filter(None, (table.title, line.dataset, BLOCKS.get(line.scale or "-"))))


def label_of(line: Line, lines: Sequence[Line]) -> str:
    """Return the name of a line, with its model where ``lines`` have several."""
    several = len({other.model for other in lines}) > 1
    return f"{line.model}, {line.name}" if several else line.name


def _by_epoch(table: Table, block: Block) -> Iterator[Plot]:
    """Yield test metric and training loss by epoch, a row of panels for each data set.

    Reduced runs are drawn only if there are no others, and of many rows only those that the
    catalogue names for the figures by cost. Curves that the authors published are drawn next to
    ours, for as many epochs as ours have.
    """
    found = [line for _, line in block.experiments if line.curves(line.metric.curve)]
    lines = [line for line in found if line.runs and not line.runs.reduction] or found
    counts, main = Counter(line.dataset for line in lines), table.entry.by_cost
    many = {dataset for dataset, n in counts.items() if n > _MANY}
    many &= {line.dataset for line in lines if line.name_in_table in main}
    shown = [line for line in lines if line.dataset not in many or line.name_in_table in main]
    note = "only the main rows are drawn" if len(shown) < len(lines) else ""
    curves = []
    for line in shown:
        label = label_of(line, lines)
        row = f"{line.dataset}\n{line.metric.heading}"
        columns = {"Test": (line.metric.curve, line.metric.scale), "Training loss": (_LOSS, 1.0)}
        for column, (name, scale) in columns.items():
            if not (ours := line.curves(name)):
                continue
            curves.append(mean_curve(label, ours, (row, column), scale, family=line.family))
            if theirs := table.published.get(line.row, {}).get(name):
                begun = [run[: min(map(len, ours))] for run in theirs]
                curves.append(mean_curve(f"{label}: the authors' log", begun, (row, column), scale))
    names = file_name(table.key, block.key, "curves"), FIGURES["curves"]
    title = ", ".join(filter(None, (table.title, block.title)))
    if curves:
        yield Plot(
            *names, title, curves, "epoch", "; ".join(filter(None, (bands_of(curves), note)))
        )


def bands_of(curves: Sequence[Curve]) -> str:
    """Return the note of curves from :func:`mean_curve`."""
    return "mean over runs; band: ± one standard error" if any(c.band for c in curves) else ""


def mean_curve(
    label: str,
    runs: Sequence[_Values],
    panel: tuple[str, str],
    scale: float = 1.0,
    x: Any = None,
    family: str = "",
) -> Curve:
    """Return the mean over runs as far as all go, by default by epoch, without missing values.

    Epochs without any value are left out: evaluations may be rarer than epochs.
    """
    n, epochs = len(runs), min(map(len, runs))
    values = np.array([run[:epochs] for run in runs], dtype=float)  # (runs, epochs)
    known = np.isfinite(values).any(axis=0)
    x = np.asarray(range(1, epochs + 1) if x is None else x[:epochs])[known]
    values = scale * np.ma.masked_invalid(values[:, known])
    mean = values.mean(axis=0)
    error = values.std(axis=0, ddof=1) / np.sqrt(n) if n > 1 else None
    band = None if error is None else (mean - error, mean + error)
    return Curve(label, x, mean, *panel, band, family)


def along_training(table: Table) -> Iterator[Plot]:
    """Yield, for each data set, the cosines along exact training, and the radii of all rows."""
    found = sorted(measured_lines(table.lines), key=lambda line: not line.scale)
    for (block, dataset), group in groupby(found, lambda line: (line.block, line.dataset)):
        lines = list(group)
        exact = [line for line in lines if line.gradient is None] or lines
        cosines, radii = [], []
        for line in lines:
            x = line.curves(STEP)[0]
            for name in dict.fromkeys(name for record in line.records for name in record.curves):
                row, cosine = f"cosine along training\n{line.method}", estimator_of(name)
                if cosine and line in exact:
                    panel, label = (row, cosine[0]), cosine[1]
                    cosines.append(mean_curve(label, line.curves(name), panel, x=x))
                elif name in RADII:
                    panel = "spectral radius", RADII[name]
                    runs = line.curves(name)
                    radii.append(mean_curve(line.name, runs, panel, x=x, family=line.family))
        # None of cosines, for example, if the estimators have names of a user's own.
        drawn = (("cosines", cosines), ("radius", radii))
        for kind, curves in ((kind, curves) for kind, curves in drawn if curves):
            name = file_name(table.key, block, lines[0].key, kind)
            names = name, FIGURES[kind].format(dataset=dataset), title_of(table, lines[0])
            yield Plot(*names, curves, "training step", bands_of(curves), share="all")
