"""The figures of test-time scaling: accuracy by depth and breadth, and residuals of errors."""

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd

from phantomgrad_reasoners.report.scaling_tables import (
    RULES,
    by_row,
    depths,
    set_names,
    title_of,
)
from phantomgrad_suite.report.catalogue import FIGURES
from phantomgrad_suite.report.document import Table
from phantomgrad_suite.report.figures.run_figures import mean_curve
from phantomgrad_suite.report.figures.style import Lines, Plot, curve, file_name
from phantomgrad_suite.report.studies.parts import Records

_LOWEST = -4  # decade of the recorded histograms, in bins of a tenth
_BINS = 12  # at most, in a panel


def scaling(table: Table) -> Iterator[Plot]:
    """Yield the accuracies and the residuals of each row of trained runs."""
    for group in by_row(table.studies):
        numbers = group[0].numbers
        changed = (name.partition("-")[2] for name in (numbers["instance"], group[0].instance))
        name = file_name(table.key, numbers["row"], *changed)
        title = f"{table.entry.label}, {title_of(group)}"
        points = pd.concat(_accuracies(group), ignore_index=True)
        note = "mean over runs; band: ± one standard error" if len(group) > 1 else ""
        about = name, FIGURES["scaling"], f"{title}: {_solved(group)}"
        yield Lines(*about, points, note=note)
        points = pd.concat(_residuals(group), ignore_index=True)
        about = f"{name}_residual", FIGURES["scaling_residual"], f"{title}: {_separated(group)}"
        yield Lines(*about, points, "residual", log="x")


def _solved(group: Records) -> str:
    """Return the accuracy on the first test set at the depth of training, and at the largest."""
    sets = [record.numbers["sets"][0]["accuracy"] for record in group]
    found = {n: 100 * np.mean([accuracy[n - 1] for accuracy in sets]) for n in depths(group)}
    return ", ".join(f"{accuracy:.1f} % solved with {n} segments" for n, accuracy in found.items())


def _separated(group: Records) -> str:
    """Return the areas under the curve of the residual of the state against errors."""
    rows = [row for r in group for part in r.numbers["sets"] for row in part["residuals"]]
    areas = [row["state"]["auroc"][0] for row in rows if row["state"]["auroc"]]
    if not areas:
        return "residuals of the state"
    return (
        f"residuals of the state find errors with an AUROC of {min(areas):.2f} to {max(areas):.2f}"
    )


def _accuracies(group: Records) -> Iterator[pd.DataFrame]:
    """Yield accuracy by segment and by number of starts, a row of panels for each test set."""
    for i, name in enumerate(set_names(group)):
        row, sets = f"{name.lower()}\nexact accuracy (%)", [r.numbers["sets"][i] for r in group]
        runs = [part["accuracy"] for part in sets]
        yield mean_curve("the model's own start", runs, (row, "segments"), 100)
        for segments in depths(group):
            cells = [[c for c in part["breadth"] if c["segments"] == segments] for part in sets]
            starts = [cell["starts"] for cell in cells[0]]
            panel = row, f"starts, {segments} segments"
            for rule, label in RULES.items():
                runs = [[cell[rule] for cell in run] for run in cells]
                yield mean_curve(label.lower(), runs, panel, 100, starts)


def _residuals(group: Records) -> Iterator[pd.DataFrame]:
    """Yield the distributions of residuals over all runs and test sets."""
    for kind in ("logits", "state"):
        for segments in depths(group):
            found = [
                row[kind]
                for record in group
                for part in record.numbers["sets"]
                for row in part["residuals"]
                if row["segments"] == segments
            ]
            groups = ("solved", "unsolved")
            counts = {name: np.sum([row[name] for row in found], axis=0) for name in groups}
            (full,) = np.nonzero(counts["solved"] + counts["unsolved"])
            low, high = max(0, full[0] - 1), min(len(counts["solved"]), full[-1] + 2)
            merged = math.ceil((high - low) / _BINS)
            bins = np.arange(0, high - low, merged)
            x = 10 ** (_LOWEST + (low + bins + merged / 2) / 10)
            for name, values in counts.items():
                if n := values.sum():
                    panel = f"{kind}\npuzzles (%)", f"{segments} segments"
                    shares = 100 * np.add.reduceat(values[low:high], bins) / n
                    yield curve(name, x, shares, *panel)
