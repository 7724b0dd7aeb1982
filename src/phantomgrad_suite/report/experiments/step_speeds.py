"""Speeds of training steps on synthetic batches, as a column of the tables of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from phantomgrad_suite.report.catalogue import NOTES
from phantomgrad_suite.report.experiments.lines import Line
from phantomgrad_suite.report.studies.parts import place
from phantomgrad_suite.runs.records import StudyRecord


@dataclass(frozen=True)
class StepSpeeds:
    """The speeds of rows relative to the paper's reference, by row, and their reductions."""

    heading: str
    factors: dict[str, float] = field(default_factory=dict)
    changes: list[str] = field(default_factory=list)

    @property
    def note(self) -> str:
        """The footnote of its column."""
        changes = "; ".join(dict.fromkeys(self.changes))
        reduced = NOTES["step_speed_reduced"].format(changes) if changes else ""
        return f"{self.heading}: {NOTES['step_speed']}{reduced}."

    def of(self, line: Line) -> float | None:
        """Return the speed of a line that has one in the paper."""
        return self.factors.get(line.row) if line.paper_speed else None


def step_speeds(records: Sequence[StudyRecord], lines: Sequence[Line]) -> list[StepSpeeds]:
    """Return the speeds of all records that measured some of ``lines``, one for each hardware."""
    found: dict[str, StepSpeeds] = {}
    for record in records:
        rows = record.numbers["rows"]
        references = {row["baseline"] for row in rows}
        factors = {
            row.get("stands_for") or row["row"]: row["faster"]["step"] if row["baseline"] else 1.0
            for row in rows
            if row["baseline"] or row["row"] in references
        }
        if factors.keys() & {line.row for line in lines}:
            heading = f"Speed, step on {place(record)}"
            speeds = found.setdefault(heading, StepSpeeds(heading))
            speeds.factors.update(factors)
            speeds.changes.extend([", ".join(record.changes)] if record.changes else [])
    return list(found.values())
