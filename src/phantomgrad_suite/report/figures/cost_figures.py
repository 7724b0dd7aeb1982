"""The test metric against the cost of training, which the paper does not show."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from phantomgrad_suite.report.catalogue import FIGURES
from phantomgrad_suite.report.experiments.evaluations import evaluations
from phantomgrad_suite.report.experiments.lines import Line
from phantomgrad_suite.report.experiments.runs import Runs
from phantomgrad_suite.report.figures.plot import Plot, file_name
from phantomgrad_suite.report.figures.run_figures import bands_of, label_of, mean_curve, title_of
from phantomgrad_suite.report.table import Table
from phantomgrad_suite.runs.records import Record

_THOUSANDS = "thousand evaluations of f"
_SECONDS = "seconds/step_cpu"  # sums by epoch
_UNIT = "seconds/f_cpu"  # of one f; runs on a GPU have only the seconds of the device


def by_cost(table: Table) -> Iterator[Plot]:
    """Yield, for each data set, the test metric by processor time and by evaluations of f.

    The catalogue names the rows. Changed runs are left out, and so are runs of unknown cost:
    they have no times in the unit of the others, or kept no weights, which count steps.
    """
    named = [line for line in table.lines if line.name_in_table in table.entry.by_cost]
    whole = [line for line in named if line.runs and not line.runs.reduction]
    timed = _with_runs(whole, lambda run: "last" in run.weights and _SECONDS in run.curves)
    for (block, dataset), group in groupby(timed, lambda line: (line.block, line.dataset)):
        lines = list(group)
        in_f = len({name for line in lines if line.runs for name in line.runs.hardware}) > 1
        lines = _with_runs(lines, lambda run: _UNIT in run.curves) if in_f else lines
        time, curves = f"processor time in {_THOUSANDS if in_f else 'seconds'}", []
        for line in lines:
            tests, label = line.curves(line.metric.curve), label_of(line, lines)
            row, epochs = f"{dataset}\n{line.metric.heading}", min(map(len, tests))
            times = [seconds(record, in_f=in_f) for record in line.records]
            work = [evaluations(record) / 1e3 for record in line.records]
            for column, costs in ((time, times), (_THOUSANDS, work)):
                x = np.mean([cost[:epochs] for cost in costs], axis=0)
                curves.append(mean_curve(label, tests, (row, column), line.metric.scale, x))
        if not curves:
            continue
        names = file_name(table.key, block, lines[0].key, "cost"), FIGURES["cost"]
        yield Plot(*names, title_of(table, lines[0]), curves, note=bands_of(curves), log="x")


def _with_runs(lines: Sequence[Line], wanted: Callable[[Record], bool]) -> list[Line]:
    """Return the lines with those of their runs that are wanted, if there are any."""
    kept = [(line, [*filter(wanted, line.records)]) for line in lines]
    return [
        replace(line, runs=Runs([*runs, *line.runs.diverged]))
        for line, runs in kept
        if runs and line.runs
    ]


def seconds(record: Record, *, in_f: bool) -> NDArray[np.float64]:
    """Return the processor time of all steps up to each epoch, or the thousand f that it takes."""
    unit = 1e3 * np.nanmedian(np.array(record.curves[_UNIT], dtype=float)) if in_f else 1
    return np.cumsum(np.array(record.curves[_SECONDS], dtype=float) / float(unit))
