"""Figures, drawn from the same tables as Markdown, LaTeX and HTML."""

from phantomgrad_suite.report.figures import run_figures, study_figures, sweep_figures
from phantomgrad_suite.report.figures.boards import examples
from phantomgrad_suite.report.figures.cost_figures import by_cost
from phantomgrad_suite.report.figures.plot import Plot
from phantomgrad_suite.report.table import Table

_MAKERS = {
    "figure1": study_figures.cosines,
    "figure2": run_figures.along_training,
    "figure3": sweep_figures.sweeps,
    "figure4": study_figures.iterations,
    "table2": study_figures.scaling,
    "theorems": study_figures.theorems,
    "throughput": study_figures.phases,
    "tune": sweep_figures.searches,
}


def plots_of(table: Table) -> list[Plot]:
    """Return the figures of a table, none without its records."""
    make = _MAKERS.get(table.key, run_figures.of_runs)
    return [*make(table), *by_cost(table), *examples(table)] if table.sections else []
