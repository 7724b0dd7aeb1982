"""Speeds of training steps on synthetic batches, as a column of the tables of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from phantomgrad_suite.report.catalogue import NOTES
from phantomgrad_suite.report.experiments.lines import Line
from phantomgrad_suite.report.studies.parts import place
from phantomgrad_suite.runs.records import StudyRecord


@dataclass(frozen=True)
class StepSpeeds:
    """The speeds of rows relative to the reference of the paper, on one hardware.

    Attributes:
        place: the hardware, and whether the measurement is reduced.
        changes: how it is reduced.
        factors: how many times less time a sample takes than in the reference, by row.
    """

    place: str
    changes: str
    factors: dict[str, float]

    @property
    def heading(self) -> str:
        """The heading of its column."""
        return f"Speed, step on {self.place}"

    @property
    def note(self) -> str:
        """The footnote of its column."""
        reduced = NOTES["step_speed_reduced"].format(self.changes) if self.changes else ""
        return f"{self.heading}: {NOTES['step_speed']}{reduced}."

    def of(self, line: Line) -> float | None:
        """Return the speed of a line that has one in the paper."""
        return self.factors.get(line.row) if line.paper_speed else None


def step_speeds(records: Sequence[StudyRecord], lines: Sequence[Line]) -> list[StepSpeeds]:
    """Return the speeds of all records that measured some of ``lines``, one for each hardware."""
    rows = {line.row for line in lines}
    found: dict[str, tuple[list[str], dict[str, float]]] = {}
    for record in records:
        factors = _factors(record)
        if rows & factors.keys():
            changes, known = found.setdefault(place(record), ([], {}))
            changes += [", ".join(record.changes)] if record.changes else []
            known |= factors
    return [StepSpeeds(where, "; ".join(dict.fromkeys(c)), f) for where, (c, f) in found.items()]


def _factors(record: StudyRecord) -> dict[str, float]:
    """Return the speeds by the row of the paper that each measured row stands for."""
    rows = record.numbers["rows"]
    references = {row["baseline"] for row in rows}
    shown = {row["row"]: row.get("stands_for") or row["row"] for row in rows}
    factors = {shown[row["row"]]: row["faster"]["step"] for row in rows if row["baseline"]}
    return factors | {shown[row["row"]]: 1.0 for row in rows if row["row"] in references}
