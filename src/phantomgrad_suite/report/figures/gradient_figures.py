"""The figure of the bench of gradients: the error of the direction against what it costs."""

from collections.abc import Iterator
from itertools import groupby

import numpy as np

from phantomgrad_suite.report.catalogue import FIGURES
from phantomgrad_suite.report.figures.plot import Curve, Plot
from phantomgrad_suite.report.studies.gradients import Cost, front, products, seconds, setting_name
from phantomgrad_suite.report.studies.parts import Numbers, with_instance
from phantomgrad_suite.report.table import Table

_RESOLUTION = 1e-6  # of a cosine in float32


def milliseconds(row: Numbers) -> float:
    """Return what an estimate took."""
    return 1e3 * seconds(row)


_COSTS: dict[str, Cost] = {"products": products, "milliseconds": milliseconds}


def by_cost(table: Table) -> Iterator[Plot]:
    """Yield one figure: a row of panels for each setting, a column for each cost."""
    curves = []
    for record in table.studies:
        name = with_instance(record, setting_name(record), table.studies)
        row, rows = f"{name}\n1 - cosine", record.numbers["estimators"]
        for column, cost in _COSTS.items():
            groups = [("Pareto front", front(rows, cost))]
            groups += [(label, list(group)) for label, group in groupby(rows, _family)]
            for label, group in groups:
                errors = np.maximum([1 - each["cosine"] for each in group], _RESOLUTION)
                curves.append(Curve(label, [cost(each) for each in group], errors, row, column))
    names, note = (table.key, FIGURES[table.key], table.title), "lower and further left is better"
    yield Plot(*names, curves, note=note, log="xy")


def _family(row: Numbers) -> str:
    """Return the name of an estimator without its k or tolerance, but with its λ."""
    name = str(row["name"])
    if " A(" in name:
        form, _, rest = name.partition(" A(")
        return f"{form}, λ = {rest.split(', ')[1].rstrip(')')}"
    return name.partition(", tol")[0]
