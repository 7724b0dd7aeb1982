"""What the tables of all studies share."""

from __future__ import annotations

from collections.abc import Sequence

from phantomgrad_suite.report.table import DASH, Section
from phantomgrad_suite.runs.formats import duration, hardware
from phantomgrad_suite.runs.records import StudyRecord

Records = Sequence[StudyRecord]


def number(value: float | None, digits: str) -> str:
    """Return a measured number to ``digits``, or a dash if it was not finite."""
    return DASH if value is None else format(value, digits)


def name(record: StudyRecord, text: str, records: Records) -> str:
    """Return ``text``, followed by the instance where the row has several."""
    several = sum(other.row == record.row for other in records) > 1
    return f"{text} ({record.instance})" if several else text


def device(record: StudyRecord) -> str:
    """Return what a study ran on."""
    on_gpu = str(record.config.get("device", "cpu")).startswith("cuda")
    return hardware(record.environment, on_gpu)


def place(record: StudyRecord) -> str:
    """Return the hardware of a study, and whether it is reduced."""
    return device(record) + (", reduced" if record.protocol != "full" else "")


def checks(records: Records) -> Section:
    """Return the claims that the studies test with their verdicts, and where the studies ran."""
    rows = [
        (
            name(record, record.row, records),
            check.claim,
            f"{check.value:.6g}",
            f"{check.bound:g}",
            "holds" if check.holds else "DOES NOT HOLD",
        )
        for record in records
        for check in record.checks
    ]
    notes = [
        f"{r.row} ({r.instance}): {duration(r.seconds['total'])} on {device(r)}"
        + (f"; reduced: {', '.join(r.changes)}." if r.changes else ".")
        for r in records
    ]
    if not rows:
        return Section("Measured on", notes=tuple(notes))
    headings = ("Study", "Claim", "Measured", "Bound", "Verdict")
    return Section.of_texts("Checks", headings, rows, words=2, notes=notes)
