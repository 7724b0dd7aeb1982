"""Figures of the tables, drawn with matplotlib."""

from collections.abc import Callable, Iterator

from phantomgrad_suite.report.document import Table
from phantomgrad_suite.report.figures import run_figures, study_figures, sweep_figures
from phantomgrad_suite.report.figures.style import Plot

MAKERS: dict[str, Callable[[Table], Iterator[Plot]]] = {
    "figure1": study_figures.cosines,
    "figure2": run_figures.along_training,
    "figure3": sweep_figures.sweeps,
    "figure4": study_figures.iterations,
    "gradients": study_figures.by_cost,
    "table2": study_figures.scaling,
    "theorems": study_figures.theorems,
    "throughput": study_figures.phases,
    "tune": sweep_figures.searches,
}
"""How the figures of a table are made, by its key; by default :func:`run_figures.of_runs`."""

OF_ALL: list[Callable[[Table], Iterator[Plot]]] = [run_figures.by_cost]
"""What makes further figures, of any table of runs."""


def plots_of(table: Table) -> list[Plot]:
    """Return the figures of a table, none without its records."""
    if table.studies:
        makers = [MAKERS[table.key]] if table.key in MAKERS else []
    else:
        makers = [MAKERS.get(table.key, run_figures.of_runs), *OF_ALL] if len(table.runs) else []
    return [plot for make in makers for plot in make(table)]
