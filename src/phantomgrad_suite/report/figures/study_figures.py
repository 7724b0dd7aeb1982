"""The figures of the studies: Figures 1 and 4, and Table 2."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from phantomgrad_suite.report.catalogue import FIGURES
from phantomgrad_suite.report.document import Table
from phantomgrad_suite.report.figures.style import FAMILIES, Lines, Plot, curve, once
from phantomgrad_suite.report.studies import costs, parts, precision
from phantomgrad_suite.runs.records import StudyRecord

_LOW, _HIGH = 0, 4  # of the quantiles of Figure 4
_RESOLUTION = 1e-6  # of a cosine in float32
_ALIKE = 1.1  # the factor below which condition numbers give columns that look the same
_ACROSS = 3  # levels of Figure 4
_SOLVED = {"angle": r"$1 - \cos(\hat{g}, g)$", "l1_norm": r"$\|\hat{g}\|_1$"}


def cosines(table: Table) -> Iterator[Plot]:
    """Yield Figure 1: a row of panels for each λ, a column for each F."""
    curves, best = [], []
    for record in precision.by_nonlinearity(table.studies):
        setting, reduced = record.setting, ", reduced" if record.changes else ""
        name = parts.with_instance(record, setting["nonlinearity"], table.studies)
        column = f"{name} (n = {setting['samples']:,}{reduced})"
        for (form, damping), estimates in precision.by_form(record).items():
            k, row = [estimate["steps"] for estimate in estimates], rf"$\lambda = {damping}$"
            best.append((estimates[-1]["states"]["mean"], k[-1], damping))
            for which, label in (("states", "whole states"), ("rows", "rows of the state")):
                levels = np.array([estimate[which]["percentiles"] for estimate in estimates])
                panel = row + "\n" + r"$\cos(\hat{g}, g)$", column
                median = curve(f"{form}, {label}", k, levels[:, 50], *panel, family=form)
                curves.append(median.assign(low=levels[:, 1], high=levels[:, -2]))
    points = once(pd.concat(curves, ignore_index=True))
    least, steps, damping = min(best)
    found = f"with k = {steps} the mean cosine is at least {least:.3f} (λ = {damping})"
    title = f"{table.entry.label}: {found}"
    note = "curves: medians; band: 1 % to 99 % of the samples"
    about = table.key, FIGURES["figure1"], title
    yield Lines(*about, points, "k", note, log="x")


def iterations(table: Table) -> Iterator[Plot]:
    """Yield Figure 4, one for each F: a row of panels for each quantity, a column for each L."""
    for record in table.studies:
        curves, form, levels = [], record.setting["nonlinearity"], _levels(record)
        for level in levels:
            condition = float(f"{level['condition']:.3g}")
            column = rf"$L_h = {level['lipschitz']}$, κ = {condition:,g}"
            for method in level["methods"]:
                for quantity, row in _SOLVED.items():
                    curves.append(_by_iteration(method, quantity, row, column))
            k = range(len(level["methods"][0]["l1_norm"]))
            exact = [level["l1_norm"][precision.MEDIAN]] * len(k)
            curves.append(curve(r"exact $\|g\|_1$", k, exact, _SOLVED["l1_norm"], column))
        ends = [m["cosine"][-1][precision.MEDIAN] for m in levels[-1]["methods"] if m["damping"]]
        finite = [cosine for cosine in ends if cosine is not None]
        best = f"reach a cosine of {max(finite):.3f}" if finite else "all diverge"
        found = (
            f"at κ = {float(format(levels[-1]['condition'], '.3g')):,g}, phantom gradients {best}"
        )
        name = parts.with_instance(record, f"figure4_{form}", table.studies).replace(" ", "_")
        title = f"{table.entry.label}, {form} F: {found}"
        about = name, FIGURES["figure4"].format(**record.setting), title
        note = f"median over the samples; band: 5 % to 95 %; drawn down to {_RESOLUTION:g}"
        points = once(pd.concat(curves, ignore_index=True))
        yield Lines(*about, points, "iterations of Broyden, or k", note, log="y")


def _levels(record: StudyRecord) -> list[parts.Numbers]:
    """Return up to three levels whose condition numbers differ, the largest among them."""
    found: list[parts.Numbers] = []
    for level in record.numbers["levels"]:
        if not found or level["condition"] >= _ALIKE * found[-1]["condition"]:
            found.append(level)
    return found if len(found) <= _ACROSS else [*found[: _ACROSS - 1], found[-1]]


def _by_iteration(method: parts.Numbers, quantity: str, row: str, column: str) -> pd.DataFrame:
    values = np.asarray(method["cosine" if quantity == "angle" else quantity], dtype=float)
    if quantity == "angle":  # (iterations, quantiles)
        values = np.maximum(1 - values[:, ::-1], _RESOLUTION)
    first = 0 if method["damping"] is None else 1
    band = {"low": values[:, _LOW], "high": values[:, _HIGH]}
    x, y = range(first, first + len(values)), values[:, precision.MEDIAN]
    return curve(precision.solver_name(method), x, y, row, column, family=_family(method), **band)


def scaling(table: Table) -> Iterator[Plot]:
    """Yield the measurements of Table 2: a row of panels for each device."""
    curves = [
        curve(
            f"{method['name']}, by {method['variable']}",
            method["sizes"],
            scale * np.array(method[quantity]),
            parts.device_label(record),
            f"{title} ({unit})",
            family=_family(method),
        )
        for record in table.studies
        for method in record.numbers["methods"]
        for quantity, (title, unit, scale) in costs.COSTS.items()
    ]
    orders = dict.fromkeys(
        f"{method['name']} {method['fits']['graph_bytes']['order']}"
        for record in table.studies
        for method in record.numbers["methods"]
    )
    title = f"{table.entry.label}: memory of the graph: {'; '.join(orders)}"
    about = table.key, FIGURES["table2"], title
    yield Lines(*about, pd.concat(curves, ignore_index=True), "k or K", "medians")


def _family(method: parts.Numbers) -> str:
    """Return the family of a method of Table 2 or Figure 4: all but phantom gradients solve."""
    return method["name"] if method["name"] in FAMILIES else "implicit"
