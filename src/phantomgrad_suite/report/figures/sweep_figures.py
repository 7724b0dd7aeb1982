"""Figure 3 and the searches: the influence of λ, k and the form of the phantom gradient."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from phantomgrad_suite.report.catalogue import FIGURES
from phantomgrad_suite.report.experiments.lines import Line
from phantomgrad_suite.report.figures.plot import Curve, Plot, file_name
from phantomgrad_suite.report.figures.run_figures import title_of
from phantomgrad_suite.report.table import Table

_EPOCHS = {"best": "best epoch", "last": "last epoch"}
_DODGE = 1.04  # factor between neighbours on the axis of k
_ALIKE = 0.1  # share of the range of the values by which best and last epochs may differ


def sweeps(table: Table) -> Iterator[Plot]:
    """Yield the test metric of each block by k: a row for each epoch, a column for each form.

    The best epochs have no panels where they are nearly as good as the last ones.
    """
    for block in table.blocks:
        lines = [line for _, line in block.experiments if line.gradient and line.records]
        if not lines:
            continue
        first, points = lines[0], [line.gradient for line in lines if line.gradient]
        dampings = sorted({point.damping for point in points})
        curves = []
        values = {which: _compared(lines, which) for which in _EPOCHS}
        best, last = (values[which][0] for which in _EPOCHS)
        if np.abs(best - last).max() <= _ALIKE * np.ptp(last):
            del values["best"]
        for which, (means, errors) in values.items():
            found = sorted(zip(points, means, errors, strict=True))
            for (form, damping), group in groupby(found, lambda point: point[0][:2]):
                k, mean, error = np.transpose([(point.steps, m, e) for point, m, e in group])
                k *= _DODGE ** dampings.index(damping)
                band = None if np.isnan(error).all() else (mean - error, mean + error)
                row = f"{first.metric.heading}\n{_EPOCHS[which]}"
                curves.append(Curve(rf"$\lambda = {damping}$", k, mean, row, form, band))
        whiskers = ["whiskers: ± one standard error"] if any(c.band for c in curves) else []
        notes = dict.fromkeys(line.variant for line in lines if line.variant)
        notes |= {f"{x.method}: {x.fate}": None for _, x in block.experiments if x.fate}
        yield Plot(
            *(file_name(table.key, block.key), FIGURES["sweep"].format(line=first)),
            *(title_of(table, first), curves),
            x="k",
            note="; ".join(["mean over the runs", *whiskers, *notes]),
            log="x",
            share="row",
            whiskers=True,
            ticks=sorted({point.steps for point in points}),
        )


def _compared(lines: Sequence[Line], which: str) -> tuple[Any, Any]:
    """Return means, and standard errors without what runs of one seed and fold have in common.

    They are within-subject errors (Morey, 2008), over the seeds and folds that all lines have.
    """
    runs = [{r.instance: getattr(r.result, which) for r in line.records} for line in lines]
    means = np.array([np.nanmean([*values.values()]) for values in runs])
    shared = [name for name in runs[0] if all(name in values for values in runs)]
    scale, errors = lines[0].metric.scale, np.full(len(lines), np.nan)
    if len(shared) > 1 and len(lines) > 1:
        values = np.array([[found[name] for name in shared] for found in runs])
        errors = (values - values.mean(axis=0)).std(axis=1, ddof=1)
        errors *= np.sqrt(len(lines) / (len(lines) - 1) / len(shared))
    return scale * means, scale * errors


def searches(table: Table) -> Iterator[Plot]:
    """Yield the validation objective of each search by λ, of the trials that may be compared."""
    for block in table.blocks:
        kinds: dict[tuple[str, str, str], list[Any]] = {}  # trials by variant and kind of search
        for _, line in block.experiments:
            if line.gradient and line.runs and line.runs.objective:
                search = line.runs.searched
                kind = line.variant, search["objective"], search["direction"]
                kinds.setdefault(kind, []).append((line.gradient, line, line.runs.objective))
        if not kinds:
            continue
        (variant, name, direction), found = max(kinds.items(), key=lambda item: len(item[1]))
        n = max(stat.n for *_, stat in found)
        trials = [trial for trial in found if trial[2].n == n]
        line = trials[0][1]
        choose, arrow = {"minimize": (min, "↓"), "maximize": (max, "↑")}[direction]
        row = f"{name.replace('/', ' ')}, best epoch {arrow}"
        means: dict[str, list[tuple[float, float]]] = {}
        for gradient, _, stat in sorted(trials, key=lambda trial: trial[0]):
            label = f"{gradient.form}, k = {gradient.steps}"
            means.setdefault(label, []).append((gradient.damping, stat.mean))
        best, _, least = choose(trials, key=lambda trial: trial[2].mean)
        means[f"chosen: {best.form} A({best.steps}, {best.damping})"] = [(best.damping, least.mean)]
        curves = []
        for label, pairs in means.items():
            x, y = np.transpose(pairs)
            curves.append(Curve(label, x, y, row))
        note = f"means of {len(trials)} trials of {n} run{'s' * (n > 1)} each; {variant}".rstrip(
            "; "
        )
        names = file_name(table.key, block.key), FIGURES["search"].format(line=line)
        yield Plot(*names, title_of(table, line), curves, r"$\lambda$", note)
