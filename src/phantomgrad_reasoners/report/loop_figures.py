"""The figure of looped models: quality by the number of loops in evaluation."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from phantomgrad_suite.report.catalogue import FIGURES
from phantomgrad_suite.report.document import Table
from phantomgrad_suite.report.experiments import metric_of_line
from phantomgrad_suite.report.figures.run_figures import mean_curve
from phantomgrad_suite.report.figures.style import Lines, Plot, file_name
from phantomgrad_suite.report.results import records_of
from phantomgrad_suite.runs.records import Record


def loops(table: Table) -> Iterator[Plot]:
    """Yield the last test values by loops: a panel for each data set and length of words."""
    curves = [part for line in table.experiments.itertuples() for part in _by_loops(table, line)]
    if curves:
        points = pd.concat(curves, ignore_index=True)
        name, title = file_name(table.key, "loops"), f"{table.entry.label}, {_finding(points)}"
        note = "mean over runs; band: ± one standard error"
        about = name, FIGURES["loops"], title
        yield Lines(*about, points, "loops in evaluation", note, log="x")


def _finding(points: pd.DataFrame) -> str:
    """Return what the loops change in the panel where they change most."""
    curves = points.groupby(["row", "column", "label"], sort=False, as_index=False)
    ends = curves["y"].agg(["first", "last"])
    change = (ends["first"] - ends["last"]) / ends[["first", "last"]].max(axis=1)
    most = ends.loc[change.abs().idxmax()]
    panel = ends[(ends["row"] == most["row"]) & (ends["column"] == most["column"])]
    changes = [f"{x.first:.1f} to {x.last:.1f} with {x.label}" for x in panel.itertuples()]
    few, many = points["x"].min(), points["x"].max()
    where = most["row"].partition("\n")[0]
    return (
        f"{where}: from {few:g} to {many:g} loops in evaluation, {', '.join(changes)} in training"
    )


def _by_loops(table: Table, line: Any) -> Iterator[pd.DataFrame]:
    metric, runs = metric_of_line(line), records_of(line, table.runs)
    if not runs or not (times := runs[0].config["task"].get("evaluated_segments")):
        return
    x = [n * runs[0].config["solver"]["n"] for n in (1, *times)]
    for name in runs[0].curves:
        part, _, key = name.rpartition("/")
        if key == metric.key and part.startswith("test"):
            column = part.replace("test/length", "length ")
            panel = f"{line.dataset}\n{metric.heading}", column
            values = [_last(run, name, times) for run in runs]
            yield mean_curve(line.method, values, panel, x, metric.scale)


def _last(run: Record, name: str, times: list[int]) -> list[float]:
    """Return the last values after once, and so many times, the loops of training."""
    return [run.curves[name][-1], *(run.curves[f"{name}_at_{n}"][-1] for n in times)]
