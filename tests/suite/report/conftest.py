"""Synthetic results: a few numbers of a paper, and records written as runs write them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from graph_data import REPOSITORY

from phantomgrad_suite.report.catalogue import entry_of
from phantomgrad_suite.report.command import main
from phantomgrad_suite.report.document import Section, Table, markdown
from phantomgrad_suite.report.extensions import load_extensions
from phantomgrad_suite.report.figures import plots_of
from phantomgrad_suite.report.figures.style import Plot
from phantomgrad_suite.report.inputs import PaperNumber
from phantomgrad_suite.report.results import table_of_runs
from phantomgrad_suite.report.studies import table_of_studies
from phantomgrad_suite.report.tables import load
from phantomgrad_suite.runs.archive import Archive
from phantomgrad_suite.runs.records import Record, Result, StudyRecord

load_extensions()
PUBLISHED = Archive(REPOSITORY / "results" / "records")

toy = partial(
    PaperNumber, table="table9", dataset="Toy", model="IGNN", params="38K", metric="accuracy"
)
UPG = "UPG A(5, 0.5)"
PAPER = (
    toy("table9/toy_implicit", line=1, method="Implicit", value="84.1", spread="2.9"),
    toy("table9/toy_upg_k5_d0.5", line=2, method=UPG, value="83.9", note="best of three runs"),
)


def gradient_of(row: str) -> dict[str, Any]:
    """Return the configuration of the gradient that the name of a row of these tests ends with."""
    found = re.search(r"(upg|npg)_k(\d+)_d([\d.]+)$", row)
    if not found:
        return {"_target_": "phantomgrad.ImplicitGradient"}
    kind = {"upg": "Unrolled", "npg": "Neumann"}[found[1]]
    target = f"phantomgrad.{kind}PhantomGradient"
    return {"_target_": target, "steps": int(found[2]), "damping": float(found[3])}


def record(row: str, instance: str, values: list[float | None], **changes: Any) -> Record:
    """Return a record whose test accuracy by epoch is ``values``."""
    known = [value for value in values if value is not None]
    best, last = max(known, default=math.nan), [math.nan, *values][-1]
    content = Record(
        row=row,
        instance=instance,
        label={"dataset": "Toy", "model": "IGNN", "method": "Implicit"},
        protocol="full",
        changes=[],
        result=Result("accuracy", best, [*values, best].index(best) + 1, last),
        curves={"test/accuracy": values, "train/loss": [1.0 / (e + 1) for e in range(len(values))]},
        parameters={"total": 37634, "trainable": 27010},
        data={"name": "Toy", "fingerprint": "sha256:aaaaaaaa11"},
        solver={"evaluations": 14.0, "adjoint_evaluations": 17.0},
        seconds={"total": 90.0, "epoch": 0.4},
        memory={"peak_bytes": 512 * 2**20, "kind": "process"},
        environment={"processor": "a CPU", "threads": 1, "accelerator": None},
        config={"label": {"reduced": []}, "gradient": gradient_of(row)},
        config_hash="cccccccc22",
        started="2026-01-01T00:00:00+00:00",
        finished="2026-01-01T00:01:30+00:00",
    )
    return replace(content, **changes)


def runs_table(key: str, records: Sequence[Record]) -> Table:
    """Return a table of runs without numbers of the paper."""
    return table_of_runs(entry_of(key), [], records)


def published(row: str, /, **changes: Any) -> StudyRecord:
    """Return the record of a study in this repository, changed."""
    found = PUBLISHED.records[row, "seed0"]
    assert isinstance(found, StudyRecord)
    return replace(deepcopy(found), **changes)


def study_table(key: str, *records: StudyRecord) -> Table:
    """Return the table of some studies."""
    return table_of_studies(entry_of(key), records)


def plots(table: Table) -> dict[str, Plot]:
    """Return the figures of a table, by the name of their files."""
    return {plot.name: plot for plot in plots_of(table)}


def points(plot: Any) -> dict[tuple[str, str, str], tuple[list[float], list[float]]]:
    """Return the points of each curve, by row, column and label."""
    groups = plot.points.groupby(["row", "column", "label"], sort=False)
    return {key: (group["x"].tolist(), group["y"].tolist()) for key, group in groups}


def rows(section: Section) -> list[dict[str, str]]:
    """Return the printed cells of a section, by heading."""
    found: list[dict[str, str]] = section.frame.to_dict("records")
    return found


@dataclass
class Folder:
    """A folder of results, and what the paper has printed."""

    path: Path
    numbers: list[PaperNumber] = field(default_factory=list)

    @property
    def archive(self) -> Archive:
        """Its records, read anew."""
        return Archive(self.path / "records")

    def add(self, row: str, instance: str, values: list[float | None], **changes: Any) -> Path:
        """Write a record where it belongs."""
        return self.write(record(row, instance, values, **changes))

    def write(self, content: Record | StudyRecord) -> Path:
        """Write a record where it belongs."""
        self.archive.add(content)
        return self.archive.file_of(content)

    def report(self, *names: str) -> int:
        """Run the command here; return its exit status."""
        return main([*names, f"results={self.path}"])

    def table(self, key: str) -> Table:
        """Return a table as the command loads it."""
        return load(key, self.archive)

    def markdown(self, key: str) -> str:
        """Return a table as Markdown."""
        return markdown(self.table(key))

    def rows(self, key: str) -> list[dict[str, str]]:
        """Return the results of a table, by heading."""
        return rows(self.table(key).sections[0])


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    folder = Folder(tmp_path, list(PAPER))
    monkeypatch.setattr("phantomgrad_suite.report.tables.read_paper", lambda: folder.numbers)
    return folder
