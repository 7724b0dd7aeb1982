"""What the live page is told of run folders and records."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from dashboard.workshop import Workshop, log
from report.conftest import record

from phantomgrad_suite.dashboard.live import as_json, snapshot
from phantomgrad_suite.runs.records import write_record

needs_locks = pytest.mark.skipif(
    not Path("/proc/locks").exists(), reason="this system lists no locks in /proc/locks"
)


def of(state: dict[str, Any], *place: str) -> dict[str, Any]:
    (found,) = [run for run in state["runs"] if (run["row"], run["instance"]) == place]
    return dict(found)


def test_nothing_there_is_all_missing(workshop: Workshop) -> None:
    found = snapshot(workshop.places)
    assert found["states"] == {"done": 0, "running": 0, "failed": 0, "stopped": 0, "missing": 4}
    assert found["runs"] == []
    (table,) = found["tables"]
    assert [line["row"] for line in table["rows"]] == ["toy/implicit", "toy/upg"]
    assert abs(found["at"] - time.time()) < 60
    assert not workshop.runs.exists()  # nothing is written


@needs_locks
def test_running_run_with_its_curves(workshop: Workshop) -> None:
    folder = workshop.running("toy/upg", "seed0")
    log(folder, "0,0.5,,1", "0,,2.5,", "1,0.75,,1", header="epoch,test/accuracy,train/loss,step")
    run = of(snapshot(workshop.places), "toy/upg", "seed0")
    assert (run["state"], run["epoch"], run["epochs"], run["done_epochs"]) == ("running", 2, 50, 2)
    assert run["latest"] == {"test/accuracy": 0.75, "train/loss": 2.5}
    assert run["curves"] == [
        {"name": "test/accuracy", "values": [0.5, 0.75]},
        {"name": "train/loss", "values": [2.5, None]},
    ]


@needs_locks
def test_lock_is_looked_up_again(workshop: Workshop) -> None:
    """A command looks once, a page that stays must not."""
    workshop.running("toy/upg", "seed0")
    assert of(snapshot(workshop.places), "toy/upg", "seed0")["state"] == "running"
    workshop.held.pop().close()
    assert of(snapshot(workshop.places), "toy/upg", "seed0")["state"] == "stopped"


def test_failed_run_says_why(workshop: Workshop) -> None:
    workshop.folder("toy/implicit", "seed1", failed="CUDA out of memory", host="gpu07")
    found = snapshot(workshop.places)
    run = of(found, "toy/implicit", "seed1")
    assert (run["state"], run["detail"]) == ("failed", "CUDA out of memory (gpu07)")
    assert found["tables"][0]["rows"][0]["states"]["failed"] == 1


def test_finished_runs_lately_newest_first(workshop: Workshop) -> None:
    for seed in range(8):
        folder = workshop.finished("toy/upg", f"seed{seed}", [0.1, None, 0.5])
        os.utime(folder / "record.json", (0, 1000 + seed))
    found = snapshot(workshop.places)
    assert [run["instance"] for run in found["runs"]] == ["seed7", "seed6", "seed5", "seed4"]
    first = found["runs"][0]
    assert (first["result"]["best"], first["result"]["best_epoch"]) == (0.5, 3)
    assert first["curves"][0] == {"name": "test/accuracy", "values": [0.1, None, 0.5]}
    assert (first["heard"], first["epochs"]) == (1007, 3)


def test_published_run_is_done_without_a_folder(workshop: Workshop) -> None:
    path = workshop.results / "records/toy/upg/seed0.json"
    write_record(record("toy/upg", "seed0", [0.5]), path)
    found = snapshot(workshop.places)
    assert found["states"]["done"] == 1
    assert found["runs"] == []


def test_table_last_heard_of_comes_first(workshop: Workshop) -> None:
    other = workshop.path / "configs/table/zoo.yaml"
    other.write_text((workshop.path / "configs/table/toy.yaml").read_text().replace("toy/", "zoo/"))
    for row in ("implicit", "upg"):
        (workshop.path / "configs/experiment/zoo").mkdir(exist_ok=True)
        (workshop.path / f"configs/experiment/zoo/{row}.yaml").write_text("{}\n")
    workshop.folder("custom", "seed0-abcdef12")
    for place, heard in (("custom/seed0-abcdef12", 1000), ("zoo/upg/seed1", 2000)):
        row, _, instance = place.rpartition("/")
        if row != "custom":
            workshop.folder(row, instance)
        os.utime(workshop.runs / place / "attempt.json", (0, heard))
    found = snapshot(workshop.places)
    assert [table["table"] for table in found["tables"]] == ["zoo", "in no table", "toy"]
    assert [line["row"] for line in found["tables"][0]["rows"]] == ["zoo/upg", "zoo/implicit"]


def test_broken_files_are_no_obstacle(workshop: Workshop) -> None:
    """A note of another version, a record cut short, a log of bytes: the rest is shown."""
    folder = workshop.folder("toy/upg", "seed0", epochs="many", failed="x")
    log(folder, "0,\udcff".encode("utf-8", "replace").decode())
    half = workshop.finished("toy/upg", "seed1", [0.5])
    (half / "record.json").write_text("{")
    nan = workshop.folder("toy/implicit", "seed0")
    (nan / "attempt.json").write_text('{"host": "elsewhere", "epochs": NaN}')
    found = json.loads(as_json(snapshot(workshop.places)))
    assert {run["state"] for run in found["runs"]} == {"failed", "running"}
    assert [run["epochs"] for run in found["runs"]] == [None, None]
    assert found["states"]["done"] == 1
