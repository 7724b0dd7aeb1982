"""Table 2 as a figure: time and memory of each gradient against k or K."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from phantomgrad_suite.report.figures.style import bare, handle, legend, looks, panels
from phantomgrad_suite.report.studies.complexity import QUANTITIES
from phantomgrad_suite.report.table import Table


def scaling_figure(table: Table) -> Figure:
    """Return the measurements with their fitted laws, a row of panels for each device."""
    records = table.studies
    size = (9.6, 2.7 * len(records) + 0.9)
    figure, grid = panels(len(records), len(QUANTITIES), size, table.title)
    styles = looks(method["name"] for method in records[0].numbers["methods"])
    for axes_row, record in zip(grid, records, strict=True):
        for axes, (quantity, title, unit, scale) in zip(axes_row, QUANTITIES, strict=True):
            for method, look in zip(record.numbers["methods"], styles.values(), strict=False):
                sizes, fit = method["sizes"], method["fits"][quantity]
                points = [value * scale for value in method[quantity]]
                marks = {**look, "linestyle": "none", "markersize": 5, "fillstyle": "none"}
                axes.plot(sizes, points, **marks)
                between = np.linspace(sizes[0], sizes[-1], 50)
                fitted = np.polynomial.polynomial.polyval(between, fit["curve"]) * scale
                axes.plot(between, fitted, linewidth=1.2, **{**look, "marker": None})
            axes.set_title(title)
            axes.set_ylabel(unit)
            axes.set_xlabel("k (phantom) or K (implicit)")
            axes.set_ylim(bottom=0)
            bare(axes, "y")
    handles = [handle(name, markersize=5, **look) for name, look in styles.items()]
    legend(figure, handles, len(handles), "points: measured; lines: least squares")
    return figure
