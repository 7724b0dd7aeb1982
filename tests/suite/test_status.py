"""The state of runs, read from their folders, and how ``make status`` prints it."""

import json
import os
import platform
import re
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from phantomgrad_suite.runs.configs import CONFIG_PATH
from phantomgrad_suite.runs.folder import RunFolder
from phantomgrad_suite.status import Run, examine, status

PLACE = ("chains/implicit", "seed0")
RUNS, RECORDS = Path("runs"), Path("results/records")
HERE = ("--records", str(RECORDS))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty run folder, in a new working directory, while time stands still."""
    now = time.time()
    monkeypatch.setattr("phantomgrad_suite.status.time", SimpleNamespace(time=lambda: now))
    monkeypatch.chdir(tmp_path)
    path = RUNS.joinpath(*PLACE)
    path.mkdir(parents=True)
    return path


def examined(published=()):
    return examine(*PLACE, RUNS, published)


def note(folder, **changes):
    content = {"host": platform.node(), "pid": os.getpid(), "job": None, "epochs": 50}
    (folder / "attempt.json").write_text(json.dumps({**content, **changes}))


def test_missing_published_and_finished_runs(folder):
    assert examined().state == "missing"
    assert examined([PLACE]).state == "published"
    note(folder, failed="an earlier attempt")
    assert examined().state == "failed"  # begun again
    (folder / "record.json").write_text("{}")
    assert examined().state == "done"


def test_run_of_this_machine_is_running_while_a_process_holds_its_lock(folder):
    """A living process with the noted number is no sign of it: numbers are used again."""
    text = f"epoch 12 of 50, last update 0 s ago ({platform.node()})"
    note(folder, epoch=12)
    assert examined() == Run(*PLACE, "stopped", text)
    with RunFolder(folder).locked() as acquired:
        assert acquired
        assert examined() == Run(*PLACE, "running", text)
    assert examined() == Run(*PLACE, "stopped", text)
    with RunFolder(folder).locked() as acquired:  # nor does the probe hold it
        assert acquired


def counts(text):
    lines = [line.split() for line in text.splitlines() if ":" not in line]
    return {line[0]: line[1:] for line in lines[1:]}


def test_counts_of_all_tables(folder, capsys):
    """A diverged run is done, and named."""
    diverged = {"step": 8, "reason": "the training loss is nan in epoch 2"}
    (folder / "record.json").write_text(json.dumps({"diverged": diverged}))
    own = RUNS / "mine" / "seed0-abcdef12"
    own.mkdir(parents=True)
    note(own)
    with RunFolder(own).locked():
        assert status(HERE) == 0
    out = capsys.readouterr().out
    assert counts(out)["chains"] == ["9", "1", "·", "·", "·", "·", "8"]
    assert counts(out)["table4"][-1] == "180"
    assert counts(out)["in"] == ["no", "table", "1", "·", "1", "·", "·", "·", "·"]
    done, running = out.splitlines()[-2:]
    assert done == "done: chains/implicit seed0: diverged: the training loss is nan in epoch 2"
    assert running.startswith("running: mine seed0-abcdef12: last update 0 s ago (")


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("hydra: {sweeper: {params: {seed: '0,1'}}}", "its sweep lacks experiment"),
        (
            "hydra: {sweeper: {params: {experiment: 'nothing/*', seed: 0}}}",
            r"there is no file configs/experiment/nothing/\*.yaml",
        ),
        ("hydra: {sweeper: {params", "is not YAML: while parsing a flow mapping in "),
    ],
)
def test_a_broken_table_does_not_hide_the_others(tmp_path, monkeypatch, capsys, content, error):
    monkeypatch.setenv(CONFIG_PATH, str(tmp_path))
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "mine.yaml").write_text(content)
    assert status(["--runs", str(tmp_path / "runs"), *HERE]) == 0
    assert re.search(f"mine: its runs cannot be listed: .*{error}", capsys.readouterr().out)


def test_one_table_and_failed_runs(folder, capsys):
    """A run with changes is under its row."""
    note(folder, failed="out of memory", host="gpu07")
    stopped, changed = (folder.with_name(name) for name in ("seed1", "seed0-steps_9-abcdef"))
    stopped.mkdir()
    note(stopped)
    changed.mkdir()
    (changed / "record.json").write_text("{}")
    assert status(["--table", "chains", *HERE]) == 0
    out = capsys.readouterr().out
    lines = [line.split() for line in out.splitlines()]
    row = lines.index(["chains/implicit", "3", "·", "·", "1", "1", "·", "1"])
    assert lines[row + 1][:4] == ["chains/implicit", "seed0-steps_9-abcdef", "1", "1"]
    failed = "failed: chains/implicit seed0: out of memory (gpu07)"
    assert out.splitlines()[-2] == failed
    assert out.splitlines()[-1].startswith("stopped: chains/implicit seed1: last update 0 s ago ")
    note(stopped, failed="out of memory", host="gpu07")
    assert status(["--failed"]) == 0
    shared = failed.replace("seed0", "seed0 and 1 more")
    assert capsys.readouterr().out == f"{shared}\n"
