"""The figures of a reasoner along its training: gradients compared, and fixed points by segment."""

import math
from collections.abc import Callable, Iterator
from itertools import count, takewhile

import pandas as pd

from phantomgrad_suite.report.catalogue import FIGURES
from phantomgrad_suite.report.document import Table
from phantomgrad_suite.report.experiments import leaf_of
from phantomgrad_suite.report.figures.run_figures import mean_curve, title_of
from phantomgrad_suite.report.figures.style import Lines, Plot, file_name
from phantomgrad_suite.report.frame import curves_of, estimators_of
from phantomgrad_suite.report.results import records_of
from phantomgrad_suite.runs.records import Record

_QUANTITIES = {"cosine": "cosine", "norm_ratio": "ratio of norms"}
_BY_SEGMENT: dict[str, tuple[str, Callable[[float], float]]] = {
    "residual": ("log10 of the last recursion's residual", math.log10),
    "spectral_radius": ("spectral radius", float),
    "converged": ("share of fixed points found", float),
    "solved": ("share of puzzles solved", float),
}


def instruments(table: Table) -> Iterator[Plot]:
    """Yield two figures for each row that measures its segments."""
    for line in table.experiments.itertuples():
        records = records_of(line, table.runs)
        if not curves_of(records, "precision/segment1/residual"):
            continue
        for name, kind, x, make, found in (
            ("gradients", "segment_gradients", "training step", _gradients, _last_cosines),
            ("segments", "segments", "segment", _segments, _last_solved),
        ):
            points = pd.concat(make(records), ignore_index=True)
            title = title_of(table, line, found(points))
            yield Lines(
                *(file_name(table.key, leaf_of(line.row), name), FIGURES[kind], title),
                *(points, x, "mean over runs; band: ± one standard error"),
            )


def _last_cosines(points: pd.DataFrame) -> str:
    """Return the lowest and the highest cosine at the last measured step."""
    ends = points[points["column"] == "cosine"].groupby("label")["y"].last()
    low, high = (f"{ends[label]:.2f} ({label})" for label in (ends.idxmin(), ends.idxmax()))
    return f"cosines end at {low} to {high}"


def _last_solved(points: pd.DataFrame) -> str:
    """Return the share of puzzles that the last measured step solves, by segment."""
    solved = points[points["column"] == _BY_SEGMENT["solved"][0]]
    last = 100 * solved.loc[solved["label"] == solved["label"].iloc[-1], "y"]
    n = len(last)
    return f"{last.iloc[0]:.0f} % solved after one segment, {last.iloc[-1]:.0f} % after {n}"


def _gradients(records: list[Record]) -> Iterator[pd.DataFrame]:
    """Yield cosines and ratios along training: last steps above, estimators of G below."""
    x, measured = curves_of(records, "precision/step")[0], records[0].config["measure"]["segments"]
    found = [(f"last_{j}", "the last j steps", f"j = {j}", "BPTT") for j in measured["recorded"]]
    found.append(("implicit", "the recursion as a map", "implicit", "implicit"))
    for key, (name, family) in sorted(estimators_of(records[0]).items()):
        found.append((key, "the recursion as a map", name, family))
    for name, row, label, family in found:
        for quantity, column in _QUANTITIES.items():
            runs = curves_of(records, f"precision/{name}/{quantity}")
            yield mean_curve(label, runs, (row, column), x, family=family)


def _segments(records: list[Record]) -> Iterator[pd.DataFrame]:
    """Yield what is measured by segment, a curve for each measured step."""
    steps, known = curves_of(records, "precision/step")[0], records[0].curves
    x = [*takewhile(lambda n: f"precision/segment{n}/residual" in known, count(1))]
    for point, step in enumerate(steps):
        for quantity, (column, scaled) in _BY_SEGMENT.items():
            by_segment = [curves_of(records, f"precision/segment{n}/{quantity}") for n in x]
            runs = [
                [scaled(curve[point]) for curve in run] for run in zip(*by_segment, strict=True)
            ]
            yield mean_curve(f"step {step:g}", runs, ("mean over the puzzles", column), x)
