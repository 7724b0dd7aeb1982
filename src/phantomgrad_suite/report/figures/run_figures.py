"""The figures of runs: the values of a table, curves by epoch, and what training measured."""

import re
from collections.abc import Iterator, Sequence

import numpy as np

from phantomgrad_suite.report.catalogue import FIGURES
from phantomgrad_suite.report.experiments.lines import Line
from phantomgrad_suite.report.figures.plot import Curve, Plot, file_name
from phantomgrad_suite.report.table import Block, Table

# The columns that are drawn, from top to bottom, and their labels.
_DOTS = {
    "Paper": "paper",
    "Best": "best epoch of each run",
    "Last": "last epoch",
    "Selected": "epoch selected on validation data",
}
_DODGE = 0.19  # between the values of a row
_LOSS, _STEP = "train/loss", "precision/step"
_ESTIMATE = re.compile(r"precision/(upg|npg)_k(\d+)_d([\d.]+)/cosine$")
_RADII = {
    "precision/spectral_radius/F": r"$\rho(\partial F / \partial h)$",
    "precision/spectral_radius/F_damped": r"$\rho(\partial F_\lambda / \partial h)$",
}


def of_runs(table: Table) -> Iterator[Plot]:
    """Yield the values of all rows, the curves of each block, and what training measured."""
    yield _values(table)
    yield from (plot for block in table.blocks if (plot := _by_epoch(table, block)))
    yield from along_training(table)


def _values(table: Table) -> Plot:
    """Return the values of all rows: a row of panels for each data set, a column for each block."""
    curves: list[Curve] = []
    places: dict[tuple[str, str], list[str]] = {}
    for block in table.blocks:
        for row, line in block.experiments:
            panel = f"{line.dataset}: {line.metric.heading}", block.title
            names = places.setdefault(panel, [])
            found = {label: row.number(heading) for heading, label in _DOTS.items()}
            cells = [(label, cell) for label, cell in found.items() if cell]
            for i, (label, (value, spread)) in enumerate(cells):
                y = len(names) + _DODGE * (i - (len(cells) - 1) / 2)
                band = [value - spread], [value + spread]
                curves.append(Curve(label, [value], [y], *panel, band))
            names.append(_label(line, table.lines))
    note = "whiskers: ± one standard deviation"
    curves.sort(key=lambda curve: [*_DOTS.values()].index(curve.label))
    return Plot(table.key, FIGURES["dots"], table.title, curves, note=note, places=places)


def _label(line: Line, lines: Sequence[Line]) -> str:
    several = len({other.model for other in lines}) > 1
    return f"{line.model}, {line.name}" if several else line.name


def _by_epoch(table: Table, block: Block) -> Plot | None:
    """Return test metric and training loss by epoch, a row of panels for each data set.

    Reduced runs are drawn only if there are no others. Curves that the authors published are drawn
    next to ours, for as many epochs as ours have.
    """
    found = [line for _, line in block.experiments if line.curves(line.metric.curve)]
    lines = [line for line in found if line.is_full] or found
    curves = []
    for line in lines:
        label = _label(line, lines)
        row = f"{line.dataset}\n{line.metric.heading}"
        columns = {"Test": (line.metric.curve, line.metric.scale), "Training loss": (_LOSS, 1.0)}
        for column, (name, scale) in columns.items():
            if not (ours := line.curves(name)):
                continue
            epochs = min(map(len, ours))
            curves.append(_mean(label, ours, epochs, scale, row, column))
            if theirs := table.published.get(line.row, {}).get(name):
                log = f"{label}: the authors' log"
                curves.append(_mean(log, theirs, epochs, scale, row, column))
    if not curves:
        return None
    names = file_name(table.key, block.key, "curves"), FIGURES["curves"]
    title = ", ".join(filter(None, (table.title, block.title)))
    note = "mean over runs; band: ± one standard error"
    return Plot(*names, title, curves, "epoch", note)


def _mean(
    label: str, runs: Sequence[Sequence[float]], epochs: int, scale: float, row: str, column: str
) -> Curve:
    """Return the mean over runs of the first ``epochs``; missing values are left out."""
    rows = [run[:epochs] for run in runs]
    values = scale * np.ma.masked_invalid(np.array(rows, dtype=float))  # (runs, epochs)
    x, mean = range(1, values.shape[1] + 1), values.mean(axis=0)
    if len(runs) == 1:
        return Curve(label, x, mean, row, column)
    error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    return Curve(label, x, mean, row, column, (mean - error, mean + error))


def along_training(table: Table) -> Iterator[Plot]:
    """Yield, for each data set, the cosines and the radii along the first run of each row."""
    runs = [
        (line, next(record for record in line.records if _STEP in record.curves).curves)
        for line in table.lines
        if line.curves(_STEP)
    ]
    for dataset in dict.fromkeys(line.dataset for line, _ in runs):
        cosines, radii = [], []
        for line, measured in runs:
            for name, curve in measured.items() if line.dataset == dataset else ():
                points = measured[_STEP], np.asarray(curve, dtype=float)
                if match := _ESTIMATE.match(name):
                    form, label = match[1].upper(), f"A({match[2]}, {match[3]})"
                    cosines.append(Curve(label, *points, f"{line.name}\ncosine", form))
                elif name in _RADII:
                    radii.append(Curve(line.name, *points, "spectral radius", _RADII[name]))
        notes = {
            "cosines": "cosine to the exact gradient; rows: the gradient that trained the model",
            "radius": "largest over layers and samples of a batch",
        }
        for (kind, note), curves in zip(notes.items(), (cosines, radii), strict=True):
            name = file_name(table.key, dataset.lower(), kind)
            caption, title = FIGURES[kind].format(dataset=dataset), f"{table.title}, {dataset}"
            yield Plot(name, caption, title, curves, "training step", note, share="all")
