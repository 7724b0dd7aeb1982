"""Synthetic results: a folder with a small paper.csv and records written as runs write them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from phantomgrad_suite.report.assemble import build_table
from phantomgrad_suite.report.collect import read_study_records, read_table_records
from phantomgrad_suite.report.command import main
from phantomgrad_suite.report.layout import Table
from phantomgrad_suite.report.markdown import to_markdown
from phantomgrad_suite.report.paper import read_paper
from phantomgrad_suite.runs.records import Record, Result, write_record

PAPER = """\
row,table,dataset,model,method,params,metric,value,spread,unit,note
table9/toy_implicit,table9,Toy,IGNN,Implicit,38K,accuracy,84.1,2.9,%,
table9/toy_upg_k5_d0.5,table9,Toy,IGNN,"UPG A(5, 0.5)",38K,accuracy,83.9,,%,best of three runs
"""


def record(row: str, instance: str, values: list[float | None], **changes: Any) -> Record:
    """Return a record whose test accuracy by epoch is ``values``."""
    known = [value for value in values if value is not None]
    best = max(known)
    content = Record(
        row=row,
        instance=instance,
        label={"dataset": "Toy", "model": "IGNN", "method": "Implicit"},
        protocol="full",
        changes=[],
        result=Result("accuracy", best, values.index(best) + 1, values[-1]),
        curves={"test/accuracy": values, "train/loss": [1.0 / (e + 1) for e in range(len(values))]},
        parameters={"total": 37634, "trainable": 27010},
        data={"name": "Toy", "fingerprint": "sha256:aaaaaaaa11"},
        solver={"evaluations": 14.0, "adjoint_evaluations": 17.0},
        seconds={"total": 90.0, "epoch": 0.4},
        memory={"peak_bytes": 512 * 2**20, "kind": "process"},
        environment={"processor": "a CPU", "threads": 1, "accelerator": None},
        config={},
        config_hash="cccccccc22",
        started="2026-01-01T00:00:00+00:00",
        finished="2026-01-01T00:01:30+00:00",
    )
    return replace(content, **changes)


@dataclass
class Folder:
    """A folder of results."""

    path: Path

    def add(self, row: str, instance: str, values: list[float | None], **changes: Any) -> Path:
        """Write a record where it belongs."""
        path = self.path / "records" / row / f"{instance}.json"
        write_record(record(row, instance, values, **changes), path)
        return path

    def report(self, *names: str) -> int:
        """Run the command here; return its exit status."""
        return main([*names, f"results={self.path}"], Path("nowhere"))

    def table(self, name: str) -> Table:
        """Return the table as the command builds it."""
        paper = read_paper(self.path / "paper.csv")
        records = self.path / "records"
        throughput = read_study_records(records, "throughput")
        return build_table(name, paper, read_table_records(records, name), throughput)

    def markdown(self, name: str) -> str:
        """Return the Markdown of a table, without the cost of its figures."""
        return to_markdown(self.table(name))

    def rows(self, table: str) -> list[dict[str, str]]:
        """Return the lines of the results (not of the cost), by heading."""
        rows: list[dict[str, str]] = []
        headings: list[str] = []
        for line in self.markdown(table).split("## Cost")[0].splitlines():
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            if not line.startswith("|"):
                headings = []
            elif not headings:
                headings = cells
            elif not line.startswith("| --"):
                rows.append(dict(zip(headings, cells, strict=True)))
        return rows


@pytest.fixture
def make_record() -> Callable[..., Record]:
    return record


@pytest.fixture
def results(tmp_path: Path) -> Folder:
    (tmp_path / "paper.csv").write_text(PAPER, encoding="utf-8")
    return Folder(tmp_path)
