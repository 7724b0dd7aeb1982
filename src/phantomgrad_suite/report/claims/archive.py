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
from phantomgrad_suite.report.inputs import read_all
from phantomgrad_suite.runs.identity import split_row
from phantomgrad_suite.runs.records import Record, StudyRecord, read_record, read_study

_INSTANCE = re.compile(r"seed(\d+)(?:-fold(\d+))?")  # of a run that does not differ from its row


class Archive:
    """The records that claims are tested with."""

    def __init__(self, folder: Path, baselines: Baselines) -> None:
        self.folder, self.baselines = folder, baselines
        self._runs: dict[str, Mapping[Key, Record]] = {}

    def runs_of(self, row: str) -> Mapping[Key, Record]:
        """Return the runs of a row by seed and fold."""
        if row not in self._runs:
            found = read_all(self.folder, row, read_record)
            matches = [(_INSTANCE.fullmatch(run.instance), run) for run in found]
            self._runs[row] = {(int(m[1]), int(m[2] or 0)): run for m, run in matches if m}
        return self._runs[row]

    def study(self, name: str) -> StudyRecord | None:
        path = self.folder / f"{name}.json"
        return read_study(path) if path.is_file() else None

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
        """Return the folder of the records that a claim is tested with."""
        if isinstance(claim, RunsClaim):
            scale, row = split_row(claim.a[0])
            return self.folder / scale / row.split("/")[0]
        if isinstance(claim, StudyClaim | SpeedClaim):
            return (self.folder / claim.study).parent
        return None
