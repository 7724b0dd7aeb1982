"""Figures of the tables, drawn with seaborn."""

from collections.abc import Callable, Iterator

from phantomgrad_suite.report.document import Table
from phantomgrad_suite.report.figures import run_figures, study_figures
from phantomgrad_suite.report.figures.style import Plot

MAKERS: dict[str, list[Callable[[Table], Iterator[Plot]]]] = {
    "figure1": [study_figures.cosines],
    "figure2": [run_figures.along_training],
    "figure3": [run_figures.sweeps],
    "figure4": [study_figures.iterations],
    "table2": [study_figures.scaling],
}
"""What makes the figures of a table, by its key; those of other tables of runs are by cost."""


def plots_of(table: Table) -> list[Plot]:
    """Return the figures of a table, none without its records."""
    if not table.studies and table.runs.empty:
        return []
    default = [] if table.runs.empty else [run_figures.along_cost]
    return [plot for make in MAKERS.get(table.key, default) for plot in make(table)]
