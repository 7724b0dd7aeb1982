"""Tables of the studies, which measure without training."""

from collections.abc import Callable, Iterator

from phantomgrad_suite.report.catalogue import Entry
from phantomgrad_suite.report.document import Section, State, Table
from phantomgrad_suite.report.studies import (
    baselines,
    costs,
    gradients,
    precision,
    theorems,
)
from phantomgrad_suite.report.studies.parts import Records, checks

STUDIES: dict[str, Callable[[Entry, Records], Iterator[Section]]] = {
    "baselines": baselines.baselines,
    "figure1": precision.synthetic,
    "figure4": precision.conditioning,
    "gradients": gradients.bench,
    "table2": costs.complexity,
    "theorems": theorems.theorems,
    "throughput": costs.throughput,
    "torchdeq": costs.against_torchdeq,
}
"""How the sections of a table are made from its records."""


def table_of_studies(entry: Entry, records: Records) -> Table:
    """Return the table of some studies: their results, then their checks."""
    sections: list[Section] = []
    if records:
        sections += STUDIES[entry.key](entry, records)
        sections += [Section(notes=tuple(entry.notes)), checks(records)]
    return Table(entry, *_state(entry, records), tuple(sections), studies=tuple(records))


def _state(entry: Entry, records: Records) -> tuple[State, str]:
    rows = {record.row for record in records}
    missing = [part for part, row in entry.parts.items() if row not in rows]
    full = sum(record.protocol == "full" for record in records)
    failed = sum(not check.holds for record in records for check in record.checks)
    if not records:
        return State.MISSING, ""
    if missing:
        return State.PARTLY, f"not {', '.join(missing)}"
    if full < len(records):
        detail = f"{full} of {len(records)} studies in full"
        return State.PARTLY if full else State.REDUCED, detail
    verb = "check does" if failed == 1 else "checks do"
    return State.MADE, f"{failed} {verb} not hold" if failed else ""
