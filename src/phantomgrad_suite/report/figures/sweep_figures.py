"""Figure 3 and the searches: the influence of λ, k and the form of the phantom gradient."""

from collections.abc import Iterator
from itertools import groupby

import numpy as np

from phantomgrad_suite.report.catalogue import FIGURES
from phantomgrad_suite.report.figures.plot import Curve, Plot, file_name
from phantomgrad_suite.report.table import Table

_EPOCHS = {"Best": "best epoch", "Selected": "epoch selected", "Last": "last epoch"}
_DODGE = 1.04  # factor between neighbours on the axis of k


def sweeps(table: Table) -> Iterator[Plot]:
    """Yield the test metric of each block by k: a row for each epoch, a column for each form."""
    for block in table.blocks:
        rows = [(x.gradient, x, row) for row, x in block.experiments if x.gradient and x.runs]
        if not rows:
            continue
        rows.sort(key=lambda found: found[0])
        dampings = sorted({gradient.damping for gradient, *_ in rows})
        curves = []
        for heading, epoch in _EPOCHS.items():
            for (form, damping), group in groupby(rows, lambda found: found[0][:2]):
                cells = [(gradient.steps, row.number(heading)) for gradient, _, row in group]
                points = [(float(k), *cell) for k, cell in cells if cell]
                if points:
                    k, mean, spread = np.transpose(points)
                    k *= _DODGE ** dampings.index(damping)
                    label = rf"$\lambda = {damping}$"
                    row = f"{rows[0][1].metric.heading}\n{epoch}"
                    curves.append(Curve(label, k, mean, row, form, (mean - spread, mean + spread)))
        reduced = "; ".join(dict.fromkeys(line.variant for _, line, _ in rows if line.variant))
        caption = FIGURES["sweep"].format(line=rows[0][1])
        yield Plot(
            *(file_name(table.key, block.key), caption, f"{table.title}, {rows[0][1].dataset}"),
            curves,
            x="k",
            note=f"mean ± one standard deviation over the runs; {reduced}".rstrip("; "),
            log="x",
            share="row",
            whiskers=True,
            ticks=sorted({gradient.steps for gradient, _, _ in rows}),
        )


def searches(table: Table) -> Iterator[Plot]:
    """Yield the validation objective of each search by λ, of the trials that may be compared."""
    for block in table.blocks:
        found = [
            (line.gradient, line, line.runs.objective)
            for _, line in block.experiments
            if line.gradient and line.runs and line.runs.objective
        ]
        variants = [line.variant for _, line, _ in found]
        usual = max(variants, key=variants.count, default="")
        n = max((stat.n for _, line, stat in found if line.variant == usual), default=0)
        trials = [t for t in found if t[1].variant == usual and t[2].n == n]
        if not trials:
            continue
        line = trials[0][1]
        assert line.runs is not None
        name, direction = line.runs.searched["objective"], line.runs.searched["direction"]
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
        note = f"means of {len(trials)} trials of {n} run{'s' * (n > 1)} each; {usual}".rstrip("; ")
        names = file_name(table.key, block.key), FIGURES["search"].format(line=line)
        yield Plot(*names, f"{table.title}, {line.dataset}", curves, r"$\lambda$", note)
