"""Figures, drawn from the same tables as Markdown, LaTeX and HTML."""

from phantomgrad_suite.report.figures import (
    gradient_figures,
    run_figures,
    scaling_figures,
    study_figures,
    sweep_figures,
)
from phantomgrad_suite.report.figures.boards import examples
from phantomgrad_suite.report.figures.cost_figures import by_cost
from phantomgrad_suite.report.figures.plot import Plot
from phantomgrad_suite.report.figures.reasoner_figures import instruments
from phantomgrad_suite.report.table import Table

_MAKERS = {
    "figure1": study_figures.cosines,
    "figure2": run_figures.along_training,
    "figure3": sweep_figures.sweeps,
    "figure4": study_figures.iterations,
    "gradients": gradient_figures.by_cost,
    "scaling": scaling_figures.scaling,
    "table2": study_figures.scaling,
    "theorems": study_figures.theorems,
    "throughput": study_figures.phases,
    "tune": sweep_figures.searches,
}


def plots_of(table: Table) -> list[Plot]:
    """Return the figures of a table, none without its records."""
    make = _MAKERS.get(table.key, run_figures.of_runs)
    of_all = (make, by_cost, examples, instruments)
    return [plot for each in of_all for plot in each(table)] if table.sections else []
