"""Figures of the tables, drawn with seaborn."""

from collections.abc import Callable, Iterator

from phantomgrad_suite.report.document import Table
from phantomgrad_suite.report.figures import run_figures, study_figures
from phantomgrad_suite.report.figures.style import Plot

MAKERS: dict[str, Callable[[Table], Iterator[Plot]]] = {
    "figure1": study_figures.cosines,
    "figure2": run_figures.along_training,
    "figure3": run_figures.sweeps,
    "figure4": study_figures.iterations,
    "table2": study_figures.scaling,
}
"""How the figures of a table are made, by its key; of other tables of runs, by cost."""

OF_ALL: list[Callable[[Table], Iterator[Plot]]] = []
"""What makes further figures, of any table of runs."""


def plots_of(table: Table) -> list[Plot]:
    """Return the figures of a table, none without its records."""
    if table.studies:
        makers = [MAKERS[table.key]] if table.key in MAKERS else []
    else:
        default = run_figures.along_cost
        makers = [MAKERS.get(table.key, default), *OF_ALL] if len(table.runs) else []
    return [plot for make in makers for plot in make(table)]
