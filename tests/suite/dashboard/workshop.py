"""Run folders as runs leave them, written by hand, with a table file that lists some of them."""

from __future__ import annotations

import fcntl
import json
import platform
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from report.conftest import record

from phantomgrad_suite.dashboard.live import Places
from phantomgrad_suite.dashboard.server import Server
from phantomgrad_suite.runs import status as folders
from phantomgrad_suite.runs.records import write_record

TABLE = """\
hydra:
  sweeper:
    params:
      experiment: toy/implicit,toy/upg
      seed: range(2)
"""


@dataclass
class Workshop:
    """Configurations, runs and results below one folder."""

    path: Path
    held: list[TextIO] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Write a table of two rows with two seeds each."""
        for place, content in {
            "configs/table/toy.yaml": TABLE,
            "configs/train.yaml": "defaults: [{dataset: blank}]\nseed: 0\n",
            "configs/dataset/blank.yaml": "{}\n",
            "configs/experiment/toy/implicit.yaml": "{}\n",
            "configs/experiment/toy/upg.yaml": "{}\n",
        }.items():
            (self.path / place).parent.mkdir(parents=True, exist_ok=True)
            (self.path / place).write_text(content)
        self.results.mkdir()

    @property
    def results(self) -> Path:
        """The folder of results."""
        return self.path / "results"

    @property
    def runs(self) -> Path:
        """The run folders."""
        return self.path / "runs"

    @property
    def places(self) -> Places:
        """Where the page looks."""
        return Places(self.path / "configs", self.runs, self.results / "records")

    def folder(self, row: str, instance: str, **note: Any) -> Path:
        """Begin a run."""
        path = self.runs / row / instance
        path.mkdir(parents=True)
        (path / ".lock").touch()
        said = {"host": platform.node(), "pid": 1, "job": None, "epochs": 50, **note}
        (path / "attempt.json").write_text(json.dumps(said))
        return path

    def running(self, row: str, instance: str, **note: Any) -> Path:
        """Begin a run that goes on: this process holds its lock, as long as this object lives."""
        path = self.folder(row, instance, **note)
        file = (path / ".lock").open("w")
        fcntl.flock(file, fcntl.LOCK_EX)
        self.held.append(file)
        folders._locked_files.cache_clear()
        return path

    def finished(self, row: str, instance: str, values: list[float | None]) -> Path:
        """Write the record of a run where runs write it."""
        path = self.folder(row, instance)
        (path / "attempt.json").unlink()
        write_record(record(row, instance, values), path / "record.json")
        return path


def log(folder: Path, *lines: str, version: int = 0, header: str = "epoch,test/accuracy") -> None:
    """Write the metrics of an attempt."""
    path = folder / "csv" / f"version_{version}" / "metrics.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in (header, *lines)))


@contextmanager
def served(workshop: Workshop, port: int = 0) -> Iterator[Server]:
    """Serve the page of a workshop."""
    with Server(port, workshop.results, workshop.places) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
