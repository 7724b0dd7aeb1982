"""Run folders as runs leave them, written by hand, and a table file that lists some of them."""

from __future__ import annotations

import json
import platform
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from report.conftest import record

from phantomgrad_suite.dashboard.plan import Places
from phantomgrad_suite.dashboard.server import Server
from phantomgrad_suite.runs.records import write_record

FILES = {
    "configs/table/toy.yaml": (
        "hydra: {sweeper: {params: {experiment: 'toy/implicit,toy/upg', seed: range(2)}}}\n"
    ),
    "configs/train.yaml": "defaults: [{dataset: blank}]\nseed: 0\n",
    "configs/dataset/blank.yaml": "{}\n",
    "configs/experiment/toy/implicit.yaml": "{}\n",
    "configs/experiment/toy/upg.yaml": "{}\n",
}


class Workshop:
    """Configurations with a table of two rows and two seeds, run folders, and results."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.configs, self.runs, self.results = path / "configs", path / "runs", path / "results"
        self.places = Places(self.configs, self.runs, self.results / "records")
        self.results.mkdir()
        for place, content in FILES.items():
            (path / place).parent.mkdir(parents=True, exist_ok=True)
            (path / place).write_text(content)

    def start(self, row: str, instance: str, **note: Any) -> Path:
        """Make the folder of a run that has begun; with another ``host`` it counts as running."""
        path = self.runs / row / instance
        path.mkdir(parents=True)
        content = {"host": platform.node(), "pid": 1, "job": None, "epochs": 50, **note}
        (path / "attempt.json").write_text(json.dumps(content))
        return path

    def finished(self, row: str, instance: str, values: list[float | None]) -> Path:
        """Write the record of a finished run into its folder; return the record's path."""
        path = self.runs / row / instance / "record.json"
        write_record(record(row, instance, values), path)
        return path

    def published(self, row: str, instance: str, values: list[float | None]) -> Path:
        """Write a record among the results; return its path."""
        path = self.places.records / row / f"{instance}.json"
        config = {"runtime": {"run": {"gradient": "upg"}}}
        write_record(record(row, instance, values, config=config), path)
        return path

    @contextmanager
    def served(self, port: int = 0) -> Iterator[Server]:
        """Serve the page."""
        with Server(port, self.places) as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            try:
                yield server
            finally:
                server.shutdown()
                thread.join()


def log(folder: Path, *lines: str, version: int = 0, header: str = "epoch,test/accuracy") -> None:
    """Write the metrics of an attempt."""
    path = folder / "csv" / f"version_{version}" / "metrics.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in (header, *lines)))


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


@pytest.fixture
def page(workshop: Workshop) -> Iterator[Server]:
    with workshop.served() as server:
        yield server
