"""The figure of the bench of gradients: the error of the direction against what it costs."""

import re
from collections.abc import Iterator
from itertools import groupby

import numpy as np

from phantomgrad_suite.report.catalogue import FIGURES
from phantomgrad_suite.report.figures.plot import Curve, Plot
from phantomgrad_suite.report.studies.gradients import COSTS, estimators, front, setting_name
from phantomgrad_suite.report.studies.parts import Numbers, with_instance
from phantomgrad_suite.report.table import Table

_RESOLUTION = 1e-6  # of a cosine in float32


def by_cost(table: Table) -> Iterator[Plot]:
    """Yield one figure: a row of panels for each setting, a column for each cost."""
    curves = []
    for record in table.studies:
        name = with_instance(record, setting_name(record), table.studies)
        panels, rows = f"{name}\n1 - cosine", estimators(record)
        for cost in COSTS:
            groups = [("Pareto front", front(rows, cost))]
            groups += [(label, list(group)) for label, group in groupby(rows, _family)]
            for label, group in groups:
                errors = np.maximum([1 - row["cosine"] for row in group], _RESOLUTION)
                curves.append(Curve(label, [row[cost] for row in group], errors, panels, cost))
    names, note = (table.key, FIGURES[table.key], table.title), "lower and further left is better"
    yield Plot(*names, curves, note=note, log="xy")


def _family(row: Numbers) -> str:
    """Return the name of an estimator without its k or tolerance, but with its λ."""
    name = re.sub(r" A\(\d+, (.+)\)$", r", λ = \1", row["name"])
    return name.partition(", tol")[0]
