"""The data of the live page."""

from __future__ import annotations

import json
import os
import time

from dashboard.conftest import Workshop, log

from phantomgrad_suite.dashboard.live import live_state


def test_without_any_run_all_is_missing(workshop: Workshop) -> None:
    state = live_state(workshop.places)
    assert state["states"] == {"done": 0, "running": 0, "failed": 0, "stopped": 0, "missing": 4}
    assert state["runs"] == []
    (table,) = state["tables"]
    assert [row["name"] for row in table["rows"]] == ["toy/implicit", "toy/upg"]
    assert {row["updated"] for row in table["rows"]} == {"—"}
    assert abs(state["at"] - time.time()) < 60
    assert not workshop.runs.exists()  # nothing is written


def test_running_run_with_its_curves(workshop: Workshop) -> None:
    folder = workshop.start("toy/upg", "seed0", host="gpu07")
    log(folder, "0,0.5,,1", "0,,2.5,", "1,0.75,,1", header="epoch,test/accuracy,train/loss,step")
    (run,) = live_state(workshop.places)["runs"]
    assert run.pop("text").startswith("epoch 2 of 50, last update ")
    assert run == {
        **{"row": "toy/upg", "instance": "seed0", "state": "running", "error": ""},
        **{"epoch": 2, "epochs": 50, "latest": {"test/accuracy": "0.75", "train/loss": "2.5"}},
        "curves": [
            {"name": "test/accuracy", "range": "0.5 to 0.75", "values": [0.5, 0.75]},
            {"name": "train/loss", "range": "2.5 to 2.5", "values": [2.5, None]},
        ],
    }


def test_long_curves_are_thinned(workshop: Workshop) -> None:
    log(workshop.start("toy/upg", "seed0"), *(f"{i},{i}" for i in range(1000)))
    ((curve,),) = [run["curves"] for run in live_state(workshop.places)["runs"]]
    assert curve["values"][:3] == [0, 7, 14]
    assert curve["range"] == "0 to 999"


def test_recently_finished_runs_come_newest_first(workshop: Workshop) -> None:
    workshop.published("toy/implicit", "seed0", [0.5])  # done, but not in a run folder
    for seed in range(8):
        path = workshop.finished("toy/upg", f"seed{seed}", [0.1, None, 0.5])
        os.utime(path, (0, time.time() - 600 + seed))
    state = live_state(workshop.places)
    assert state["states"]["done"] == 9
    assert [run["instance"] for run in state["runs"]] == ["seed7", "seed6", "seed5", "seed4"]
    first = state["runs"][0]
    assert first["text"] == "accuracy best 0.5 (epoch 3), last 0.5, 9.9 min ago"
    assert first["curves"][0]["values"] == [0.1, None, 0.5]


def test_table_updated_last_comes_first(workshop: Workshop) -> None:
    toy = (workshop.configs / "table/toy.yaml").read_text()
    (workshop.configs / "table/zoo.yaml").write_text(toy.replace("toy/", "zoo/"))
    (workshop.configs / "experiment/zoo").mkdir()
    for row in ("implicit", "upg"):
        (workshop.configs / f"experiment/zoo/{row}.yaml").write_text("{}\n")
    for row, instance, moment in (("custom", "seed0-abcdef12", 1000), ("zoo/upg", "seed1", 2000)):
        os.utime(workshop.start(row, instance) / "attempt.json", (0, moment))
    state = live_state(workshop.places)
    assert [table["name"] for table in state["tables"]] == ["zoo", "in no table", "toy"]
    assert [row["name"] for row in state["tables"][0]["rows"]] == ["zoo/upg", "zoo/implicit"]


def test_broken_files_are_no_obstacle(workshop: Workshop) -> None:
    """A note of another version, a truncated record, a log that is no text: the rest is shown."""
    folder = workshop.start("toy/upg", "seed0", epochs="many", failed="x")
    log(folder, "0,1")
    (folder / "csv/version_0/metrics.csv").write_bytes(b"epoch,a\n0,\xff\n")
    workshop.finished("toy/upg", "seed1", [0.5]).write_text("{")
    note = workshop.start("toy/implicit", "seed0") / "attempt.json"
    note.write_text('{"host": "elsewhere", "epochs": NaN}')
    state = json.loads(json.dumps(live_state(workshop.places), allow_nan=False))
    runs = {run["state"]: run for run in state["runs"]}
    assert runs["running"]["epochs"] is None
    assert (runs["failed"]["epochs"], runs["failed"]["error"]) == (None, "x")
    assert runs["done"]["text"].startswith("finished ")
    rows = {row["name"]: row["states"] for row in state["tables"][0]["rows"]}
    assert (rows["toy/upg"]["failed"], rows["toy/upg"]["done"]) == (1, 1)
