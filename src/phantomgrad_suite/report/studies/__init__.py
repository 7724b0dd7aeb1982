"""Tables and figures of the studies, from their records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from phantomgrad_suite.report.studies import complexity, dynamics, precision, theorems, throughput
from phantomgrad_suite.runs.records import StudyRecord

Records = Sequence[StudyRecord]


@dataclass(frozen=True)
class Report:
    """How a study is shown.

    Attributes:
        table: makes the Markdown page.
        figures: makes the figures, by the name of their file.
    """

    table: Callable[[Records], str]
    figures: Callable[[Records], dict[str, Figure]]


REPORTS = {
    "figure1": Report(precision.table, precision.figures),
    "figure4": Report(dynamics.table, dynamics.figures),
    "table2": Report(complexity.table, complexity.figures),
    "theorems": Report(theorems.table, theorems.figures),
    "throughput": Report(throughput.table, throughput.figures),
}
