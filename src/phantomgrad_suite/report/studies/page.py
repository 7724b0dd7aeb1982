"""What the pages of all studies share: their tables, notes and checks."""

from __future__ import annotations

from collections.abc import Sequence

from phantomgrad_suite.report.markdown import grid_markdown
from phantomgrad_suite.report.tables import DASH, Grid, Section, duration
from phantomgrad_suite.runs.records import StudyRecord

Row = Sequence[str]


def page(title: str, *parts: str) -> str:
    """Return a Markdown page; empty parts are left out."""
    return "\n\n".join([f"# {title}", *(part for part in parts if part)]) + "\n"


def table(headings: Row, rows: Sequence[Row], words: int = 1) -> str:
    """Return a Markdown table whose first ``words`` columns are words, the others numbers."""
    numeric = tuple(i >= words for i in range(len(headings)))
    section = Section("", tuple(tuple(row) for row in rows), ())
    return grid_markdown(Grid(tuple(headings), numeric, (section,)))


def number(value: float | None, digits: str) -> str:
    """Return a measured number, to ``digits``; a dash for one that was not finite."""
    return DASH if value is None else format(value, digits)


def bullets(sentences: Sequence[str]) -> str:
    """Return a Markdown list."""
    return "\n".join(f"- {sentence}" for sentence in sentences)


def name(record: StudyRecord, plain: str, records: Sequence[StudyRecord]) -> str:
    """Return ``plain``, with the instance behind it where the row has several."""
    several = sum(other.row == record.row for other in records) > 1
    return f"{plain} ({record.instance})" if several else plain


def checks(records: Sequence[StudyRecord]) -> str:
    """Return the claims that the studies put to the test, and what came out."""
    rows = [
        (
            name(record, record.row, records),
            check.claim,
            f"{check.value:.6g}",
            f"{check.bound:g}",
            _verdict(check.holds),
        )
        for record in records
        for check in record.checks
    ]
    if not rows:
        return ""
    return "## Checks\n\n" + table(("Study", "Claim", "Measured", "Bound", ""), rows, words=2)


def provenance(records: Sequence[StudyRecord]) -> str:
    """Return where and how long the studies ran, and what they reduce."""
    sentences = [
        f"`{r.row}` ({r.instance}): {duration(r.seconds['total'])} on {hardware(r)}"
        + (f"; reduced: {', '.join(r.changes)}." if r.changes else ".")
        for r in records
    ]
    return bullets(sentences)


def hardware(record: StudyRecord) -> str:
    """Return what a study ran on, in words."""
    environment = record.environment
    if str(record.config.get("device", "cpu")).startswith("cuda"):
        return str(environment.get("accelerator"))
    threads = environment.get("threads", "?")
    plural = "" if threads == 1 else "s"
    return f"{environment.get('processor', 'unknown processor')}, {threads} thread{plural}"


def _verdict(holds: bool) -> str:
    return "holds" if holds else "DOES NOT HOLD"
