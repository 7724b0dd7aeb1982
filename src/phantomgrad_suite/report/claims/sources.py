"""The records that claims are tested with."""

import re
from collections.abc import Mapping
from pathlib import Path

from phantomgrad_suite.report.baselines import Baselines
from phantomgrad_suite.report.claims.claim import (
    Claim,
    RunsClaim,
    SpeedClaim,
    StudyClaim,
    Untestable,
)
from phantomgrad_suite.report.claims.evidence import Evidence
from phantomgrad_suite.report.claims.of_runs import Key, evidence_of_runs
from phantomgrad_suite.report.claims.of_studies import evidence_of_checks, evidence_of_speed
from phantomgrad_suite.runs.archive import Archive
from phantomgrad_suite.runs.identity import split_row
from phantomgrad_suite.runs.records import Record, StudyRecord

_INSTANCE = re.compile(r"seed(\d+)(?:-fold(\d+))?")  # of a run that does not differ from its row


class Sources:
    """The records that claims are tested with."""

    def __init__(self, archive: Archive, baselines: Baselines) -> None:
        self.archive, self.baselines = archive, baselines
        self._runs: dict[str, Mapping[Key, Record]] = {}

    def runs_of(self, row: str) -> Mapping[Key, Record]:
        """Return the runs of a row by seed and fold."""
        if row not in self._runs:
            found = self.archive.of(Record, row)
            matches = [(_INSTANCE.fullmatch(run.instance), run) for run in found]
            self._runs[row] = {(int(m[1]), int(m[2] or 0)): run for m, run in matches if m}
        return self._runs[row]

    def study(self, name: str) -> StudyRecord | None:
        """Return the record of a study, named by row and instance, if it is there."""
        row, _, instance = name.rpartition("/")
        found = self.archive.of(StudyRecord, row)
        return next((record for record in found if record.instance == instance), None)

    def evidence(self, claim: Claim, margin: float, level: float) -> Evidence:
        """Return what the records say on a claim."""
        if isinstance(claim, RunsClaim):
            return evidence_of_runs(claim, self.runs_of, self.baselines, margin, level)
        if isinstance(claim, SpeedClaim):
            return evidence_of_speed(claim, self.study(claim.study), level)
        if isinstance(claim, StudyClaim):
            return evidence_of_checks(claim, self.study(claim.study))
        assert isinstance(claim, Untestable)
        return Evidence.untested(claim.untestable)

    def place(self, claim: Claim) -> Path | None:
        """Return the file or folder of the records that a claim is tested with."""
        if isinstance(claim, RunsClaim):
            scale, row = split_row(claim.a[0])
            return self.archive.folder / scale / row.split("/")[0]
        if isinstance(claim, StudyClaim | SpeedClaim):
            return self.archive.file(claim.study.rpartition("/")[0])
        return None
