"""The figures of the studies: Figures 1 and 4, Table 2, the theorems, and throughput."""

from collections.abc import Iterator, Sequence

import numpy as np

from phantomgrad_suite.report.catalogue import FIGURES
from phantomgrad_suite.report.figures.plot import FAMILIES, Curve, Plot
from phantomgrad_suite.report.studies import costs, parts, precision
from phantomgrad_suite.report.studies.theorems import first_of, gradient_name
from phantomgrad_suite.report.table import Table
from phantomgrad_suite.runs.records import StudyRecord

_LOW, _HIGH = 0, 4  # of the quantiles of Figure 4
_RESOLUTION = 1e-6  # of a cosine in float32
_ALIKE = 1.1  # the factor below which condition numbers give rows of panels that look the same
_ROUNDING = 1e-13  # of the errors of Theorem 2
_SAME = 1e-4  # of mean cosines, below what a figure shows
_ACROSS = 3  # levels of Figure 4
_SOLVED = {"angle": r"$1 - \cos(\hat{g}, g)$", "l1_norm": r"$\|\hat{g}\|_1$"}


def cosines(table: Table) -> Iterator[Plot]:
    """Yield Figure 1: a row of panels for each λ, a column for each F.

    NPG and UPG are drawn as one where they agree.
    """
    curves, steps = [], set[int]()
    for record in precision.by_nonlinearity(table.studies):
        setting, reduced = record.setting, ", reduced" if record.changes else ""
        name = parts.with_instance(record, setting["nonlinearity"], table.studies)
        column = f"{name} (n = {setting['samples']:,}{reduced})"
        for forms, damping, estimates in _distinct(record):
            k = [estimate["steps"] for estimate in estimates]
            steps.update(k)
            for which, label in (("rows", "rows of the state"), ("states", "whole states")):
                levels = np.array([estimate[which]["percentiles"] for estimate in estimates])
                band = levels[:, 1], levels[:, -2]
                row = rf"{forms}, $\lambda = {damping}$" "\n" r"$\cos(\hat{g}, g)$"
                curves.append(Curve(label, k, levels[:, 50], row, column, band))
    note = "median; band: 1 % to 99 % of the samples"
    names = (table.key, FIGURES["figure1"], table.title)
    yield Plot(*names, curves, "k", note, share="none", log="x", ticks=sorted(steps))


def _distinct(record: StudyRecord) -> Iterator[tuple[str, float, list[parts.Numbers]]]:
    """Yield forms, λ and estimates by k, once for forms whose means agree to ``_SAME``."""
    found: list[tuple[str, float, list[parts.Numbers]]] = []
    for (form, damping), estimates in precision.by_form(record).items():
        means = [[e[which]["mean"] for which in ("rows", "states")] for e in estimates]
        for i, (forms, other, known) in enumerate(found):
            theirs = [[e[which]["mean"] for which in ("rows", "states")] for e in known]
            if other == damping and np.abs(np.subtract(means, theirs)).max() < _SAME:
                found[i] = (f"{forms} and {form}", damping, known)
                break
        else:
            found.append((form, damping, estimates))
    yield from found


def iterations(table: Table) -> Iterator[Plot]:
    """Yield Figure 4, one for each F: a row of panels for each quantity, a column for each L."""
    for record in table.studies:
        curves = []
        for level in _levels(record):
            condition = float(f"{level['condition']:.3g}")
            column = rf"$L_h = {level['lipschitz']}$, κ = {condition:,g}"
            for name, method in _named(level["methods"]):
                for quantity, row in _SOLVED.items():
                    curves.append(_by_iteration(name, method, quantity, row, column))
            k = range(len(level["methods"][0]["l1_norm"]))
            exact = [level["l1_norm"][precision.MEDIAN]] * len(k)
            curves.append(Curve(r"exact, $\|g\|_1$", k, exact, _SOLVED["l1_norm"], column))
        form = record.setting["nonlinearity"]
        name = parts.with_instance(record, f"figure4_{form}", table.studies).replace(" ", "_")
        names = (name, FIGURES["figure4"].format(**record.setting), f"{table.title}, F: {form}")
        note = "median over the samples; band: 5 % to 95 %"
        yield Plot(*names, curves, "iterations of Broyden, or k", note, log="y")


def _levels(record: StudyRecord) -> list[parts.Numbers]:
    """Return up to three levels whose condition numbers differ, the largest among them."""
    found: list[parts.Numbers] = []
    for level in record.numbers["levels"]:
        if not found or level["condition"] >= _ALIKE * found[-1]["condition"]:
            found.append(level)
    return found if len(found) <= _ACROSS else [*found[: _ACROSS - 1], found[-1]]


def _named(methods: Sequence[parts.Numbers]) -> list[tuple[str, parts.Numbers]]:
    """Return methods with their names, as one those whose medians agree to ``_SAME`` of a value."""
    found: list[tuple[str, parts.Numbers]] = []
    for method in methods:
        name = precision.solver_name(method)
        for i, (_, known) in enumerate(found):
            if method["damping"] is not None and _agree(method, known):
                found[i] = (f"{known['name']} and {name}", known)
                break
        else:
            found.append((name, method))
    return found


def _agree(a: parts.Numbers, b: parts.Numbers) -> bool:
    values = [
        [np.asarray(m[q], dtype=float)[:, precision.MEDIAN] for q in ("cosine", "l1_norm")]
        for m in (a, b)
    ]
    same = (np.allclose(x, y, rtol=_SAME, equal_nan=True) for x, y in zip(*values, strict=True))
    return a["damping"] == b["damping"] and all(same)


def _by_iteration(label: str, method: parts.Numbers, quantity: str, row: str, column: str) -> Curve:
    values = np.asarray(method["cosine" if quantity == "angle" else quantity], dtype=float)
    if quantity == "angle":  # (iterations, quantiles)
        values = np.maximum(1 - values[:, ::-1], _RESOLUTION)
    first = 0 if method["damping"] is None else 1
    k, band = range(first, first + len(values)), (values[:, _LOW], values[:, _HIGH])
    family = method["name"] if method["name"] in FAMILIES else "implicit"
    return Curve(label, k, values[:, precision.MEDIAN], row, column, band, family)


def scaling(table: Table) -> Iterator[Plot]:
    """Yield the measurements of Table 2: a row of panels for each device."""
    curves = [
        Curve(
            f"{method['name']}, by {method['variable']}",
            method["sizes"],
            [scale * value for value in method[quantity]],
            parts.device_label(record),
            f"{title} ({unit})",
        )
        for record in table.studies
        for method in record.numbers["methods"]
        for quantity, (title, unit, scale) in costs.COSTS.items()
    ]
    yield Plot(table.key, FIGURES["table2"], table.title, curves, "k or K", "medians")


def phases(table: Table) -> Iterator[Plot]:
    """Yield the time per sample of each phase, a panel for each record."""
    curves, places = [], {}
    for record in table.studies:
        rows = record.numbers["rows"]
        unit = rows[0]["unit"].removesuffix("s")
        panel = f"{parts.hardware_label(record)}: milliseconds per {unit}", ""
        places[panel] = costs.row_names(rows)
        for y, row in enumerate(rows):
            for phase in ("step", "forward", "backward"):
                low, median, high = (
                    [1e3 * seconds / row["batch"]] for seconds in row["seconds"][phase]["quartiles"]
                )
                curves.append(Curve(phase, median, [y], *panel, (low, high)))
    names, note = (table.key, FIGURES[table.key], table.title), "medians; whiskers: quartiles"
    yield Plot(*names, curves, note=note, log="x", places=places)


def theorems(table: Table) -> Iterator[Plot]:
    """Yield the errors of Theorem 2 by k, and the squared gradient of Theorem 3 by step."""
    if record := first_of(table.studies, "theorems/series"):
        steps, curves = record.numbers["steps"], []
        for case in record.numbers["neumann"]:
            errors = [error if error > _ROUNDING else np.nan for error in case["error"]]
            column = f"$L_h = {case['lipschitz']:g}$"
            label = rf"$\lambda = {case['damping']:g}$"
            curves.append(Curve(label, steps, errors, "relative error", column))
        names = ("theorem2", FIGURES["theorem2"], "Theorem 2: the error of the Neumann series (i)")
        yield Plot(*names, curves, "k", log="y", share="all")
    if record := first_of(table.studies, "theorems/sgd"):
        steps, row = record.numbers["steps"], r"$\|\nabla R(W_n)\|^2$"
        curves = [
            Curve(gradient_name(case), steps, case["square"], row)
            for case in record.numbers["gradients"]
        ]
        names = ("theorem3", FIGURES["theorem3"], "Theorem 3: SGD with a phantom gradient")
        yield Plot(*names, curves, "step n", "means over the seeds", log="xy")
