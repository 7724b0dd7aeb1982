"""Figure 3 and the searches: the influence of λ, k and the form of the phantom gradient."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from phantomgrad_suite.report.catalogue import FIGURES
from phantomgrad_suite.report.document import Table
from phantomgrad_suite.report.experiments import metric_of_line
from phantomgrad_suite.report.figures.run_figures import title_of
from phantomgrad_suite.report.figures.style import Lines, Plot, curve, file_name

_EPOCHS = {"best": "best epoch", "last": "last epoch"}
_DODGE = 1.04  # factor between neighbours on the axis of k
_ALIKE = 0.1  # share of the range of the values by which best and last epochs may differ


def sweeps(table: Table) -> Iterator[Plot]:
    """Yield the test metric of each block by k: a row for each epoch, a column for each form.

    The best epochs have no panels where they are nearly as good as the last ones.
    """
    lines = table.experiments
    for block, members in lines.groupby("block", sort=False):
        lines = members[(members["form"] != "") & (members["n"] > members["lost"])]
        if lines.empty:
            continue
        first, metric = next(lines.itertuples()), metric_of_line(next(lines.itertuples()))
        lines = lines.sort_values(["form", "damping", "steps"], ascending=[False, True, True])
        last = metric.scale * lines["last"]
        apart = (metric.scale * lines["best"] - last).abs().max() > _ALIKE * np.ptp(last)
        curves = [
            part
            for score, label in _EPOCHS.items()
            if score == "last" or apart
            for part in _by_steps(lines, table.runs, score, f"{metric.heading}\n{label}")
        ]
        points = pd.concat(curves, ignore_index=True)
        ends = last.idxmin(), last.idxmax()
        low, high = (f"{last[i]:.1f} ({lines.loc[i, 'method']})" for i in ends)
        notes = ["mean over the runs"]
        notes += ["whiskers: ± one standard error"] if points["low"].notna().any() else []
        notes += [*dict.fromkeys(filter(None, lines["variant"]))]
        notes += [f"{x.method}: {x.fate}" for x in members.itertuples() if x.fate]
        yield Lines(
            *(file_name(table.key, block), FIGURES["sweep"].format(line=first)),
            title_of(table, first, f"last epochs from {low} to {high}"),
            *(points, "k", "; ".join(notes), "x"),
            share="row",
            ticks=sorted(lines["steps"].unique()),
            whiskers=True,
        )


def _by_steps(
    lines: pd.DataFrame, runs: pd.DataFrame, score: str, row: str
) -> Iterator[pd.DataFrame]:
    dampings = sorted(lines["damping"].unique())
    lines = lines.assign(error=_within_errors(lines, runs, score))
    for (form, damping), group in lines.groupby(["form", "damping"], sort=False):
        metric = metric_of_line(next(group.itertuples()))
        y, error = metric.scale * group[score], metric.scale * group["error"]
        k = group["steps"] * _DODGE ** dampings.index(damping)
        band = {"low": y - error, "high": y + error}
        label = rf"$\lambda = {damping}$"
        yield curve(
            label, k, y, row, form, family=form, **{n: b.to_numpy() for n, b in band.items()}
        )


def _within_errors(lines: pd.DataFrame, runs: pd.DataFrame, score: str) -> Any:
    """Return standard errors without what runs of one seed and fold have in common.

    They are within-subject errors (Morey, 2008), over the seeds and folds that all lines have.
    """
    finished = runs[~runs["diverged"] & runs["experiment"].isin(lines["experiment"])]
    values = finished.pivot(index="experiment", columns="instance", values=score)
    values = values.loc[lines["experiment"]].dropna(axis=1)
    n, shared = values.shape
    if n < 2 or shared < 2:
        return np.nan
    errors = (values - values.mean()).std(axis=1) * np.sqrt(n / (n - 1) / shared)
    return errors.to_numpy()


def searches(table: Table) -> Iterator[Plot]:
    """Yield the validation objective of each search by λ, of the trials that may be compared."""
    lines = table.experiments
    for block, members in lines.groupby("block", sort=False):
        found = members[(members["form"] != "") & (members["objective_n"] > 0)]
        if found.empty:
            continue
        kinds = found.groupby(["variant", "searched", "direction"], sort=False)
        (variant, name, direction), found = max(kinds, key=lambda kind: len(kind[1]))
        n = int(found["objective_n"].max())
        trials = found[found["objective_n"] == n].sort_values(["form", "damping", "steps"])
        objective = trials["objective"]
        best = trials.loc[objective.idxmin() if direction == "minimize" else objective.idxmax()]
        row = f"{name.replace('/', ' ')}, best epoch {'↓' if direction == 'minimize' else '↑'}"
        curves = [
            curve(f"{form}, k = {k}", group["damping"], group["objective"], row, family=form)
            for (form, k), group in trials.groupby(["form", "steps"], sort=False)
        ]
        chosen = f"{best.form} A({best.steps}, {best.damping})"
        curves.append(curve(f"chosen: {chosen}", [best.damping], [best.objective], row))
        first = next(trials.itertuples())
        note = f"means of {len(trials)} trials of {n} run{'s' * (n > 1)} each; {variant}"
        yield Lines(
            *(file_name(table.key, block), FIGURES["search"].format(line=first)),
            title_of(table, first, f"validation data choose {chosen}"),
            *(pd.concat(curves, ignore_index=True), r"$\lambda$", note.rstrip("; ")),
        )
