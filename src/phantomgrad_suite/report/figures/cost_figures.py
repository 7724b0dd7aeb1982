"""The figure that the paper does not have: the test metric by what training has cost."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from phantomgrad_suite.report.catalogue import FIGURES
from phantomgrad_suite.report.experiments.lines import Line
from phantomgrad_suite.report.experiments.results import block_title
from phantomgrad_suite.report.experiments.runs import SECONDS, seconds_of_f
from phantomgrad_suite.report.figures.plot import Plot, file_name
from phantomgrad_suite.report.figures.run_figures import bands_of, label_of, mean_curve
from phantomgrad_suite.report.table import Table
from phantomgrad_suite.runs.records import Record

_SOLVES = "solver/evaluations", "adjoint/evaluations"  # means by epoch


def by_cost(table: Table) -> Iterator[Plot]:
    """Yield, for each data set, the test metric by training time and by evaluations of f.

    The catalogue names the rows. Changed runs, and rows with runs that have no times, are left out.
    """
    groups: dict[tuple[str, str], list[Line]] = {}
    for line in table.lines:
        is_named = line.row.split("/")[-1] in table.entry.by_cost
        is_whole = line.runs and not line.runs.reduction
        if is_named and is_whole and len(line.curves(SECONDS)) == len(line.records):
            groups.setdefault((line.block, line.dataset), []).append(line)
    for (block, dataset), lines in groups.items():
        machines = {name for line in lines if line.runs for name in line.runs.hardware}
        in_f = len(machines) > 1
        time = f"processor time of training, in {'evaluations of f' if in_f else 'seconds'}"
        curves = []
        for line in lines:
            tests, label = line.curves(line.metric.curve), label_of(line, lines)
            row, scale = f"{dataset}\n{line.metric.heading}", line.metric.scale
            for column, costs in {
                time: [seconds(record, in_f=in_f) for record in line.records],
                "evaluations of f in training": [evaluations(record) for record in line.records],
            }.items():
                epochs = min(map(len, costs))
                x = np.mean([cost[:epochs] for cost in costs], axis=0)
                curves.append(mean_curve(label, tests, (row, column), scale, x))
        names = file_name(table.key, block, dataset.lower(), "cost"), FIGURES["cost"]
        title = ", ".join(filter(None, (table.title, block_title(block) if block else "")))
        yield Plot(*names, title, curves, note=bands_of(curves))


def seconds(record: Record, *, in_f: bool) -> NDArray[np.float64]:
    """Return the processor time of all steps up to each epoch, in seconds or evaluations of f."""
    unit = seconds_of_f(record) if in_f else 1.0
    return np.cumsum(np.array(record.curves[SECONDS], dtype=float)) / unit


def evaluations(record: Record) -> NDArray[np.float64]:
    """Return the evaluations of f, and products with its Jacobian, of all steps up to each epoch.

    A step takes those of its solves. With k steps UPG evaluates f k times to attach the gradient,
    the others once; then there are k products, for implicit differentiation one. A Jacobian
    penalty takes two evaluations and two products. Pretraining has no solves.
    """
    gradient, task = record.config["gradient"], record.config["task"]
    steps, kind = gradient.get("steps", 1), gradient["_target_"].rpartition(".")[2]
    attached = steps + (steps if kind == "UnrolledPhantomGradient" else 1)
    penalty = 4 * (task.get("jacobian") or {}).get("frequency", 0)
    found = [np.array(record.curves[n], dtype=float) for n in _SOLVES if n in record.curves]
    step = np.sum(np.nan_to_num(found), axis=0) + attached + penalty  # (epochs,)
    last = record.weights["last"]
    length = last["step"] / last["epoch"]  # of an epoch, in steps
    unrolled = task.get("pretraining_steps", 0) - length * np.arange(len(step))
    unrolled = np.clip(unrolled, 0, length)
    layers = task.get("pretraining_layers", 0)
    return np.cumsum(2 * layers * unrolled + step * (length - unrolled))
