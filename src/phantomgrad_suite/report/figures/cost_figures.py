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
_TIME = f"processor time in {_THOUSANDS}"
_SECONDS = "seconds/step_cpu"  # sums by epoch
_UNIT = "seconds/f_cpu"  # of one f; runs on a GPU have only the seconds of the device


def by_cost(table: Table) -> Iterator[Plot]:
    """Yield, for each data set, the test metric by processor time and by evaluations of f.

    The unit of time is an evaluation of f in the same run: seconds depend on the machine, and on
    what else it does. The catalogue names the rows. Changed runs are left out, and so are runs of
    unknown cost: they did not time f, or kept no weights, which count steps.
    """
    named = [line for line in table.lines if line.name_in_table in table.entry.by_cost]
    whole = [line for line in named if line.runs and not line.runs.reduction]
    timed = _with_runs(
        whole, lambda run: "last" in run.weights and {_SECONDS, _UNIT} <= run.curves.keys()
    )
    for (block, dataset), group in groupby(timed, lambda line: (line.block, line.dataset)):
        lines = list(group)
        curves = []
        for line in lines:
            tests, label = line.curves(line.metric.curve), label_of(line, lines)
            row, epochs = f"{dataset}\n{line.metric.heading}", min(map(len, tests))
            times = [processor_time(record) for record in line.records]
            work = [evaluations(record) / 1e3 for record in line.records]
            for column, costs in ((_TIME, times), (_THOUSANDS, work)):
                x = np.mean([cost[:epochs] for cost in costs], axis=0)
                scale, panel = line.metric.scale, (row, column)
                curves.append(mean_curve(label, tests, panel, scale, x, line.family))
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


def processor_time(record: Record) -> NDArray[np.float64]:
    """Return the time of all steps up to each epoch, in that of a thousand evaluations of f."""
    steps, f = (np.array(record.curves[name], dtype=float) for name in (_SECONDS, _UNIT))
    return np.cumsum(steps / (1e3 * np.nanmedian(f)))
