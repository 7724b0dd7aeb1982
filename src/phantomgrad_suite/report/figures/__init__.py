"""Figures, drawn from the same tables as Markdown, LaTeX and HTML."""

from collections.abc import Callable, Iterator

from phantomgrad_suite.report.figures import (
    gradient_figures,
    run_figures,
    study_figures,
    sweep_figures,
)
from phantomgrad_suite.report.figures.cost_figures import by_cost
from phantomgrad_suite.report.figures.plot import Plot
from phantomgrad_suite.report.table import Table

MAKERS: dict[str, Callable[[Table], Iterator[Plot]]] = {
    "figure1": study_figures.cosines,
    "figure2": run_figures.along_training,
    "figure3": sweep_figures.sweeps,
    "figure4": study_figures.iterations,
    "gradients": gradient_figures.by_cost,
    "table2": study_figures.scaling,
    "theorems": study_figures.theorems,
    "throughput": study_figures.phases,
    "tune": sweep_figures.searches,
}
"""How the figures of a table are made, by its key; by default :func:`run_figures.of_runs`."""

OF_ALL: list[Callable[[Table], Iterator[Plot]]] = [by_cost]
"""What makes further figures, of any table."""


def plots_of(table: Table) -> list[Plot]:
    """Return the figures of a table, none without its records."""
    make = MAKERS.get(table.key, run_figures.of_runs)
    return [plot for each in (make, *OF_ALL) for plot in each(table)] if table.sections else []
