"""Finished runs side by side: what was set differently, what came out, and what it cost."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from phantomgrad_suite.report.figures.style import Lines, curve, render
from phantomgrad_suite.report.frame import evaluations
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.files import write_file
from phantomgrad_suite.runs.folder import RunFolder
from phantomgrad_suite.runs.identity import decisive
from phantomgrad_suite.runs.metrics import metric_of
from phantomgrad_suite.runs.records import Record, read_record


def compare(folders: Sequence[Path], figure: Path) -> pd.DataFrame:
    """Return a table with a column for each run, and draw the test metric of all to ``figure``.

    Its first rows are the settings in which the runs differ.

    Raises:
        UserError: a folder holds no finished run, the metrics differ, or no run was tested.
    """
    records = {str(folder): _read(folder) for folder in folders}
    if len(records) < 2:
        raise UserError("name at least two folders of runs, such as runs/digits/implicit/seed0")
    metrics = {record.result.metric for record in records.values()}
    if len(metrics) > 1:
        raise UserError(f"the runs must share their metric, got {' and '.join(sorted(metrics))}")
    write_file(figure, render(_overlay(records).draw)["svg"])
    table = pd.DataFrame({name: _facts(record) for name, record in records.items()})
    settings = pd.DataFrame(
        {name: _settings(record.config) for name, record in records.items()}
    ).fillna("")
    changed = settings[settings.nunique(axis=1) > 1].sort_index()
    return pd.concat([changed, table])


def _read(folder: Path) -> Record:
    if not (path := RunFolder(folder).record).is_file():
        raise UserError(f"{folder} holds no finished run: name the folder of a run, or train it")
    return read_record(path)


def _settings(config: Mapping[str, Any]) -> dict[str, str]:
    """Return what determines the result, by its dotted name."""
    flat = pd.json_normalize({**decisive(config), "seed": config["seed"]}, sep=".")
    return {str(key): str(value) for key, value in flat.iloc[0].items()}


def _facts(record: Record) -> dict[str, str]:
    metric, result = metric_of(record.result.metric, record.result.mode), record.result
    solver, seconds = record.solver, record.seconds
    found = {
        f"{metric.heading}, best": "diverged"
        if record.diverged
        else f"{metric.format(result.best)} (epoch {result.best_epoch})",
        f"{metric.heading}, last": "diverged" if record.diverged else metric.format(result.last),
        "evaluations of f a solve": solver.get("evaluations"),
        "products a backward solve": solver.get("adjoint_evaluations"),
        "seconds an epoch": seconds.get("epoch"),
        "CPU seconds an epoch": seconds.get("epoch_cpu"),
    }
    return {name: v if isinstance(v, str) else f"{v:.3g}" for name, v in found.items() if v}


def _overlay(records: Mapping[str, Record]) -> Lines:
    """Return the test metric by epoch and, where it is known, by evaluations of f."""
    first, curves = next(iter(records.values())), []
    metric = metric_of(first.result.metric, first.result.mode)
    for name, record in records.items():
        values = pd.Series(record.curves.get(metric.curve, ()), dtype=float) * metric.scale
        values = values[values.notna()]
        axes: dict[str, Any] = {"epoch": range(1, len(record.curves.get(metric.curve, ())) + 1)}
        if "last" in record.weights and "solver/evaluations" in record.curves:
            axes["evaluations of f"] = evaluations(record)
        for column, x in axes.items():
            at = pd.Series(x, dtype=float).reindex(values.index)
            curves.append(curve(name, at, values, metric.heading, column))
    if all(points.empty for points in curves):
        raise UserError("none of the runs was tested: nothing to draw")
    return Lines("compare", "", "Runs compared", pd.concat(curves, ignore_index=True))
