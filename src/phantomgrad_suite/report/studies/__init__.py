"""Tables of the studies, which measure without training."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from phantomgrad_suite.report.catalogue import Entry
from phantomgrad_suite.report.studies import (
    complexity,
    conditioning,
    parts,
    synthetic,
    theorems,
    throughput,
)
from phantomgrad_suite.report.table import Section, State, Status, Table
from phantomgrad_suite.runs.records import StudyRecord

STUDIES: dict[str, Callable[[Entry, Sequence[StudyRecord]], list[Section]]] = {
    "figure1": synthetic.sections,
    "figure4": conditioning.sections,
    "table2": complexity.sections,
    "theorems": theorems.sections,
    "throughput": throughput.sections,
}
"""What makes the sections of a table from its records."""


def table_of_studies(entry: Entry, records: Sequence[StudyRecord]) -> Table:
    """Return the table of some studies: their results, then their checks."""
    sections: list[Section] = []
    if records:
        sections += STUDIES[entry.key](entry, records)
        sections += [Section(notes=tuple(entry.notes)), parts.checks(records)]
    return Table(entry, _status(entry, records), tuple(sections), tuple(records))


def _status(entry: Entry, records: Sequence[StudyRecord]) -> Status:
    rows = {record.row for record in records}
    missing = [part for part, row in entry.parts.items() if row not in rows]
    full = sum(record.protocol == "full" for record in records)
    failed = sum(not check.holds for record in records for check in record.checks)
    if not records:
        return Status(State.MISSING)
    if missing:
        return Status(State.PARTLY, f"not {', '.join(missing)}")
    if full < len(records):
        detail = f"{full} of {len(records)} studies in full"
        return Status(State.PARTLY if full else State.REDUCED, detail)
    verb = "check does" if failed == 1 else "checks do"
    return Status(State.MADE, f"{failed} {verb} not hold" if failed else "")
