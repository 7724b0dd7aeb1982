"""The figures of runs: scores by cost, cosines along training, and the influence of λ and k."""

from collections.abc import Iterator, Sequence, Set
from typing import Any

import numpy as np
import pandas as pd

from phantomgrad_suite.report.catalogue import BLOCKS, FIGURES
from phantomgrad_suite.report.document import Table
from phantomgrad_suite.report.experiments import leaf_of, metric_of_line
from phantomgrad_suite.report.figures.style import Lines, Plot, curve, file_name, once
from phantomgrad_suite.report.frame import by_epoch, curves_of, estimators_of, evaluations
from phantomgrad_suite.report.results import STEP, exact_part, measured_along, records_of
from phantomgrad_suite.runs.records import Record

_SECONDS, _UNIT = "seconds/step_cpu", "seconds/f_cpu"  # sums by epoch; of one f, not on a GPU
_TIME, _WORK = "processor time in thousand evaluations of f", "thousand evaluations of f"
_BAND = "mean over runs; band: ± one standard error"


def mean_curve(
    label: str,
    runs: Sequence[Any],
    panel: tuple[str, str],
    x: Any,
    scale: float = 1.0,
    family: str = "",
) -> pd.DataFrame:
    """Return the mean over runs as far as all go, by ``x``, with its standard error.

    Epochs without any value are left out: evaluations may be rarer than epochs.
    """
    values = scale * by_epoch(runs)[: min(map(len, runs))].replace([np.inf, -np.inf], np.nan)
    mean, error = values.mean(axis=1), values.sem(axis=1)
    band = {"low": mean - error, "high": mean + error} if len(runs) > 1 else {}
    return curve(label, x[: len(mean)], mean, *panel, family=family, **band).dropna(subset="y")


def title_of(table: Table, line: Any, found: str = "") -> str:
    """Return the title of a figure of one data set, with what was found."""
    place = [table.entry.label, line.dataset, BLOCKS.get(line.scale or "-")]
    return ", ".join(dict.fromkeys(filter(None, place))) + (f": {found}" if found else "")


def along_cost(table: Table) -> Iterator[Plot]:
    """Yield, for each data set, the test metric by processor time and by evaluations of f.

    The unit of time is an evaluation of f in the same run: seconds depend on the machine, and on
    what else it does. Evaluations need the weights that a run keeps, which count its steps. Where
    no run has both, the metric is drawn by epoch. The catalogue may name the rows. Searches are
    left out, and reduced runs where there are others.
    """
    named, lines = table.entry.by_cost, table.experiments
    lines = lines[(lines["n"] > lines["lost"]) & (lines["searched"] == "")]
    full = lines[lines["reduction"] == ""]
    shown = full if len(full) else lines
    shown = shown[shown["row"].map(leaf_of).isin(named)] if named else shown
    for (block, _), group in shown.groupby(["block", "dataset"], sort=False):
        if group["name"].duplicated().any() and group["model"].nunique() > 1:
            group = group.assign(name=group["model"] + ", " + group["name"])
        runs = [(line, records_of(line, table.runs)) for line in group.itertuples()]
        timed = any(_has(record, _TIMED) for _, records in runs for record in records)
        kind, costs = ("cost", _COSTS) if timed else ("curves", _EPOCH)
        curves = [part for line, each in runs for part in _by_cost(line, each, costs)]
        if curves:
            points, first = pd.concat(curves, ignore_index=True), next(group.itertuples())
            name = file_name(table.key, block, first.key.lower(), kind)
            title = title_of(table, first, _cheapest(points) or _ends(points))
            band = _BAND if points["low"].notna().any() else ""
            note = "; ".join(filter(None, (band, first.shared)))
            yield Lines(name, FIGURES[kind], title, points, note=note, log="x" if timed else "")


def _has(record: Record, curves: Set[str]) -> bool:
    """Return whether a run has these curves, and the weights that count its steps."""
    return "last" in record.weights and curves <= record.curves.keys()


def _by_cost(line: Any, records: Sequence[Record], costs: Any) -> Iterator[pd.DataFrame]:
    """Yield the mean test metric of an experiment by each mean cost.

    The metric is that of all runs, so that it is the same in all panels; a cost is that of the runs
    which measured it.
    """
    metric = metric_of_line(line)
    row, tests = f"{line.dataset}\n{metric.heading}", curves_of(records, metric.curve)
    for column, (cost, needed) in costs.items():
        runs = [r for r in records if needed is None or _has(r, needed)]
        if tests and runs:
            x = by_epoch([cost(run)[: min(map(len, tests))] for run in runs]).mean(axis=1)
            yield mean_curve(line.name, tests, (row, column), x, metric.scale, line.family)


def _cheapest(points: pd.DataFrame) -> str:
    """Return the shares of implicit training's time and evaluations that the cheapest takes.

    Compared is the first curve of implicit differentiation, which is the paper's if there is one.
    """
    totals = points.groupby(["column", "label"], sort=False)["x"].last().unstack()
    families = points.drop_duplicates("label").set_index("label")["family"]
    first, others = families.index[families == "implicit"], families.index[families != "implicit"]
    if first.empty or others.empty or _WORK not in totals.index:
        return ""
    shares = totals[others].div(totals[first[0]], axis=0).dropna(axis=1)
    if shares.empty:
        return ""
    label = shares.loc[_WORK].idxmin()
    if shares.loc[_WORK, label] >= 1:
        return ""
    time, work = (f"{100 * shares.loc[column, label]:.0f} %" for column in (_TIME, _WORK))
    scores = points.groupby("label")["y"].last()
    return (
        f"{label} takes {time} of implicit's processor time, {work} of its evaluations, and ends "
        f"at {scores[label]:.1f} (implicit: {scores[first[0]]:.1f})"
    )


def _ends(points: pd.DataFrame) -> str:
    """Return the lowest and the highest end of the curves."""
    ends = points.groupby("label", sort=False)["y"].last()
    if f"{ends.min():.1f}" == f"{ends.max():.1f}":
        return f"{'all end' if len(ends) > 1 else 'ends'} at {ends.min():.1f}"
    low, high = (f"{ends[label]:.1f} ({label})" for label in (ends.idxmin(), ends.idxmax()))
    return f"last epochs from {low} to {high}"


def processor_time(record: Record) -> np.ndarray:
    """Return the time of all steps up to each epoch, in that of a thousand evaluations of f."""
    steps, f = (np.array(record.curves[name], dtype=float) for name in (_SECONDS, _UNIT))
    return np.cumsum(steps / (1e3 * np.nanmedian(f)))


def _epochs(record: Record) -> np.ndarray:
    return np.arange(1, 1 + max(map(len, record.curves.values())))


_TIMED = {_SECONDS, _UNIT}
# The axes, and the curves that a run must have, with its weights; None for any run.
_EPOCH = {"epoch": (_epochs, None)}
_COSTS = {_TIME: (processor_time, _TIMED), _WORK: (lambda run: evaluations(run) / 1e3, set[str]())}


def along_training(table: Table) -> Iterator[Plot]:
    """Yield, for each data set, the cosines of phantom gradients along exact training."""
    measured = measured_along(table.experiments, table.runs)
    measured = measured.sort_values("scale", ascending=False, kind="stable")
    for (block, dataset), group in measured.groupby(["block", "dataset"], sort=False):
        exact = group[group["form"] == ""]
        shown = exact if len(exact) else group
        curves = [c for line in shown.itertuples() for c in _cosines(line, table)]
        if not curves:
            continue
        points, first = once(pd.concat(curves, ignore_index=True)), next(group.itertuples())
        means, least = points.groupby("label")["y"].mean(), points["y"].min()
        found = (
            f"the lowest mean cosine is {means.min():.2f} ({means.idxmin()}), at worst {least:.2f}"
        )
        about = FIGURES["cosines"].format(dataset=dataset), title_of(table, first, found)
        name = file_name(table.key, block, first.key.lower(), "cosines")
        note = _BAND if points["low"].notna().any() else ""
        yield Lines(name, *about, points, "training step", note, share="all")


def _cosines(line: Any, table: Table) -> Iterator[pd.DataFrame]:
    """Yield the cosines of all estimators, those of phantom gradients in a panel of their own."""
    records = records_of(line, table.runs)
    x, row = curves_of(records, STEP)[0], f"cosine along training\n{line.method}"
    for key, (name, family) in estimators_of(records[0]).items():
        runs = [c for r in records if (c := exact_part(r, f"precision/{key}/cosine"))]
        if by_epoch(runs).notna().any(axis=None):
            column = "implicit, truncated" if family == "implicit" else "phantom gradients"
            yield mean_curve(name, runs, (row, column), x, family=family)


def sweeps(table: Table) -> Iterator[Plot]:
    """Yield, for each data set, the test metric at the last epoch by k.

    There is a panel for each form, and a curve for each λ of each variant of the rows.
    """
    swept = table.experiments[table.experiments["form"] != ""]
    for (block, _), group in swept.groupby(["block", "dataset"], sort=False):
        lines = group[group["n"] > group["lost"]]
        if lines.empty:
            continue
        points, first = _swept(lines, table.runs), next(lines.itertuples())
        fates = [f"{line.method}: {line.fate}" for line in group.itertuples() if line.fate]
        notes = ["mean over the runs; band: ± one standard error", first.shared, *fates]
        scores = metric_of_line(first).scale * lines["last"]
        title = title_of(table, first, _ends(lines.assign(label=lines["method"], y=scores)))
        about = file_name(table.key, block, first.key.lower()), FIGURES["sweep"].format(line=first)
        yield Lines(*about, title, points, "k", "; ".join(filter(None, notes)), "x", "row")


def _swept(lines: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Return the curves of rows with their errors, which are over the rows of one variant."""
    metric = metric_of_line(next(lines.itertuples()))
    errors = pd.concat(_within_errors(part, runs) for _, part in lines.groupby("variant"))
    lines = lines.assign(y=metric.scale * lines["last"], error=metric.scale * errors)
    lines = lines.sort_values(["form", "damping", "steps"], ascending=[False, True, True])
    curves = lines.groupby(["form", "damping", "own_variant"], sort=False)
    points = pd.concat([_by_steps(key, part) for key, part in curves])
    return points.assign(row=f"{metric.heading}\nlast epoch")


def _by_steps(key: Any, lines: pd.DataFrame) -> pd.DataFrame:
    (form, damping, variant), y, error = key, lines["y"], lines["error"]
    label = f"{form}, λ = {damping}" + (f" [{variant}]" if variant else "")
    band = {"low": y - error, "high": y + error}
    return curve(label, lines["steps"], y, column=form, family=form, **band)


def _within_errors(lines: pd.DataFrame, runs: pd.DataFrame) -> pd.Series:
    """Return standard errors without what runs of one seed and fold have in common.

    They are within-subject errors (Morey, 2008), over the seeds and folds that all lines have.
    """
    finished = runs[~runs["diverged"] & runs["experiment"].isin(lines["experiment"])]
    values = finished.pivot(index="experiment", columns="instance", values="last")
    values = values.loc[lines["experiment"]].dropna(axis=1).set_axis(lines.index)
    n, shared = values.shape
    if n < 2 or shared < 2:
        return pd.Series(np.nan, lines.index)
    return (values - values.mean()).std(axis=1) * np.sqrt(n / (n - 1) / shared)
