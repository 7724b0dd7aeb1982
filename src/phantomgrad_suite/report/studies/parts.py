"""What the tables of all studies share."""

from collections.abc import Sequence
from typing import Any

from phantomgrad_suite.report.document import Section, section
from phantomgrad_suite.runs.formats import duration, hardware
from phantomgrad_suite.runs.records import StudyRecord

Records = Sequence[StudyRecord]
Numbers = dict[str, Any]


def with_instance(record: StudyRecord, text: str, records: Records) -> str:
    """Return ``text``, followed by the instance of the record where its row has several."""
    several = sum(other.row == record.row for other in records) > 1
    return f"{text} ({record.instance})" if several else text


def hardware_label(record: StudyRecord) -> str:
    """Return the hardware of a study, and whether it is reduced."""
    return device_label(record) + (", reduced" if record.protocol != "full" else "")


def device_label(record: StudyRecord) -> str:
    """Return what a study ran on."""
    on_gpu = str(record.config.get("device", "cpu")).startswith("cuda")
    return hardware(record.environment, on_gpu)


def checks(records: Records) -> Section:
    """Return the verdicts on the claims of the studies, and where the studies ran."""
    rows = [
        {
            "Study": with_instance(record, record.row, records),
            "Claim": check.claim,
            "Measured": f"{check.value:.6g}",
            "Bound": f"{check.bound:g}",
            "Verdict": "holds" if check.holds else "DOES NOT HOLD",
        }
        for record in records
        for check in record.checks
    ]
    notes = [
        f"{r.row} ({r.instance}): {duration(r.seconds['total'])} on {device_label(r)}"
        + (f"; reduced: {', '.join(r.changes)}." if r.changes else ".")
        for r in records
    ]
    return section("Checks" if rows else "Measured on", rows, words=2, notes=notes)
