"""Tables of the studies, which measure without training."""

from collections.abc import Callable, Iterator

from phantomgrad_suite.report import baselines
from phantomgrad_suite.report.catalogue import Entry
from phantomgrad_suite.report.document import Section, Table
from phantomgrad_suite.report.studies import (
    costs,
    gradients,
    precision,
    theorems,
)
from phantomgrad_suite.report.studies.parts import Records, checks

STUDIES: dict[str, Callable[[Entry, Records], Iterator[Section]]] = {
    "baselines": baselines.tables,
    "figure1": precision.synthetic,
    "figure4": precision.conditioning,
    "gradients": gradients.bench,
    "table2": costs.complexity,
    "theorems": theorems.theorems,
    "throughput": costs.throughput,
    "torchdeq": costs.against_torchdeq,
    "unrolled": gradients.unrolled,
}
"""How the sections of a table are made from its records; other studies show only their checks."""


def table_of_studies(entry: Entry, records: Records) -> Table:
    """Return the table of some studies: their results, then their checks."""
    sections: list[Section] = []
    if records:
        if entry.key in STUDIES:
            sections += STUDIES[entry.key](entry, records)
        sections += [Section(notes=tuple(entry.notes)), checks(records)]
    return Table(entry, tuple(sections), studies=tuple(records))
