"""Where the tables stand, read from files: what is to be, and what has become of it."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from graph_data import REPOSITORY
from training import Workplace, composed

from phantomgrad_suite.dashboard.plan import expected, tables
from phantomgrad_suite.dashboard.status import main
from phantomgrad_suite.jobs.compose import as_dict
from phantomgrad_suite.runs import status as folders
from phantomgrad_suite.runs.folder import RunFolder
from phantomgrad_suite.runs.identity import Identity
from phantomgrad_suite.runs.status import Run, examine

CONFIGS = REPOSITORY / "configs"
PLACE = ("chains/implicit", "seed0")


# Which runs there are to be -----------------------------------------------------------------------


def first_and_last(table: str) -> Iterator[list[str]]:
    """The overrides of two runs of a table, as Hydra's sweeper makes them."""
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
    from hydra.core.hydra_config import HydraConfig
    from hydra.core.override_parser.overrides_parser import OverridesParser

    composed([f"table={table}"])
    params = HydraConfig.get().sweeper.params
    overrides = OverridesParser.create().parse_overrides([f"{k}={v}" for k, v in params.items()])
    (runs,) = BasicSweeper.split_arguments(overrides, max_batch_size=None)
    yield from (runs[0], runs[-1])


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize("table", tables(CONFIGS))
def test_expected_runs_are_those_that_hydra_launches(table: str) -> None:
    from hydra.core.hydra_config import HydraConfig

    found = expected(CONFIGS, table)
    for overrides, ours in zip(first_and_last(table), (found[0], found[-1]), strict=True):
        plain = as_dict(composed([f"table={table}", *overrides]))
        row = HydraConfig.get().runtime.choices["experiment"]
        identity = Identity.of(plain, row, [f"table={table}", *overrides])
        assert (identity.row, identity.instance) == ours


@pytest.mark.parametrize(
    ("table", "runs"), [("chains", 9), ("figure3_cox2", 72), ("table1", 60), ("table4", 180)]
)
def test_number_of_expected_runs(table: str, runs: int) -> None:
    found = expected(CONFIGS, table)
    assert len(found) == len(set(found)) == runs


# What has become of them --------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """The empty folder of a run."""
    monkeypatch.chdir(tmp_path)
    folders._locked_files.cache_clear()
    found = RunFolder(Path("runs", *PLACE))
    found.path.mkdir(parents=True)
    return found


def examined() -> Run:
    folders._locked_files.cache_clear()
    return examine(*PLACE, Path("runs"), Path("results/records"))


def note(run: RunFolder, **changes: Any) -> None:
    content = {"host": platform.node(), "pid": 1, "job": None, "epochs": 50}
    (run.path / "attempt.json").write_text(json.dumps({**content, **changes}))


def checkpoint(run: RunFolder, epoch: int) -> None:
    run.checkpoints.mkdir()
    state = {"weight": torch.zeros(3)}
    torch.save({"epoch": epoch, "global_step": 77, "state_dict": state}, run.last_checkpoint)


def metrics(run: RunFolder, version: int, *lines: str) -> None:
    path = run.path / "csv" / f"version_{version}" / "metrics.csv"
    path.parent.mkdir(parents=True)
    path.write_text("".join(f"{line}\n" for line in ("a,epoch,step", *lines)))


def test_missing_and_published_runs(run: RunFolder) -> None:
    assert examined() == Run(*PLACE, "missing")
    published = Path("results/records", PLACE[0], f"{PLACE[1]}.json")
    published.parent.mkdir(parents=True)
    published.write_text("{}")
    assert examined().state == "done"


def test_finished_run_is_done(run: RunFolder) -> None:
    run.record.write_text("{}")
    note(run)
    assert examined() == Run(*PLACE, "done")


def test_failed_run_says_by_what(run: RunFolder) -> None:
    note(run, failed="CUDA out of memory", host="gpu07", job="812_3")
    assert examined() == Run(*PLACE, "failed", "CUDA out of memory (job 812_3 on gpu07)")


def test_locked_run_is_running(run: RunFolder) -> None:
    if not Path("/proc/locks").exists():
        pytest.skip("this system lists no locks in /proc/locks")
    note(run)
    checkpoint(run, 11)
    with run.locked() as mine:
        assert mine
        found = examined()
        with run.locked() as other:
            assert not other  # looking at it has not taken the lock away
    assert found.state == "running"
    assert found.detail.startswith("epoch 12 of 50, heard of ")
    assert found.detail.endswith(f" ago ({platform.node()})")
    assert examined().state == "stopped"


def test_run_of_another_machine_is_believed(run: RunFolder) -> None:
    """Its locks cannot be seen; how long it has been silent can."""
    note(run, host="gpu07", job="812_3")
    log = Path("runs/.cluster/812_3_0_log.out")
    log.parent.mkdir()
    log.write_text("at work")
    for path in (log, run.path / "attempt.json"):
        os.utime(path, (0, time.time() - 50 * 60))
    said = "no epoch yet, heard of 50 min ago (job 812_3 on gpu07)"
    assert examined() == Run(*PLACE, "running", said)
    os.utime(log, (0, time.time() - 300))
    assert "heard of 5 min ago" in examined().detail


def test_run_that_has_stopped_on_another_machine_says_so(run: RunFolder) -> None:
    note(run, host="gpu07", stopped="2026-01-01T00:00:00+00:00")
    assert examined() == Run(*PLACE, "stopped", "no epoch yet, heard of 0 s ago (gpu07)")


@pytest.mark.parametrize(
    ("every", "minutes", "state"),
    [
        *((10, 59, "running"), (10, 61, "stopped"), (30, 89, "running"), (30, 91, "stopped")),
        *((None, 59, "running"), (None, 61, "stopped"), ("often", 61, "stopped")),
    ],
)
def test_run_of_another_machine_that_is_silent_for_long_has_stopped(
    run: RunFolder, every: Any, minutes: int, state: str
) -> None:
    """Three checkpoints should have come since; killed, it could not say that it stopped."""
    note(run, host="gpu07", checkpoint_every_minutes=every)
    os.utime(run.path / "attempt.json", (0, time.time() - minutes * 60))
    assert examined().state == state


@pytest.mark.parametrize(
    ("lines", "epoch"),
    [
        (["1,0,4", ",7,9"], "epoch 8 of 50"),
        ([",7,9", ",8,"[:-1]], "epoch 9 of 50"),
        ([f"{i},{i},{i}" for i in range(3000)], "epoch 3000 of 50"),  # the end is read, no more
        ([], "no epoch yet"),
        (["broken"], "no epoch yet"),
    ],
)
def test_epoch_is_that_of_the_last_line(run: RunFolder, lines: list[str], epoch: str) -> None:
    note(run)
    metrics(run, 0, *lines)
    assert examined().state == "stopped"
    assert examined().detail.startswith(f"{epoch}, ")


def test_latest_of_log_and_checkpoint_counts(run: RunFolder) -> None:
    note(run)
    checkpoint(run, 20)
    metrics(run, 0, ",3,9")
    metrics(run, 1, ",22,9")
    assert examined().detail.startswith("epoch 23 of 50, ")


def test_unreadable_files_are_no_obstacle(run: RunFolder) -> None:
    (run.path / "attempt.json").write_text("{")
    (run.path / "config_hash").write_text("")
    run.checkpoints.mkdir()
    run.last_checkpoint.write_bytes(b"PK")
    assert examined().detail.startswith("no epoch yet, heard of ")


# The command --------------------------------------------------------------------------------------


def table_of(text: str) -> dict[str, list[str]]:
    lines = [line.split() for line in text.splitlines() if ":" not in line]
    return {line[0]: line[1:] for line in lines[1:]}


def test_counts_of_all_tables(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    run.record.write_text("{}")
    (run.path / ".lock").touch()
    beside = Path("runs/chains/implicit/seed0-abcdef12")
    beside.mkdir()
    (beside / ".lock").touch()
    (beside / "config_hash").touch()
    assert main([], CONFIGS) == 0
    counts = table_of(capsys.readouterr().out)
    assert counts["chains"] == ["9", "1", "·", "·", "·", "8"]
    assert counts["table4"][-1] == "180"
    assert counts["in"] == ["no", "table", "1", "·", "·", "·", "1", "·"]


def test_one_table_row_by_row(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    note(run, failed="it was too much")
    assert main(["--table", "chains"], CONFIGS) == 0
    out = capsys.readouterr().out
    assert table_of(out)["chains/implicit"] == ["3", "·", "·", "1", "·", "2"]
    assert f"failed: chains/implicit seed0: it was too much ({platform.node()})\n" in out


def test_failed_runs_alone(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    note(run, failed="it was too much", host="gpu07")
    assert main(["--failed"], CONFIGS) == 0
    said = capsys.readouterr().out
    assert said == "failed: chains/implicit seed0: it was too much (gpu07)\n"


@pytest.mark.parametrize("wrong", [["--table", "tabel4"], ["--fialed"], ["--table"], ["table4"]])
def test_wrong_arguments(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(wrong, CONFIGS) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "there is no table 'tabel4'" in said.err or "unknown argument" in said.err


def test_script_imports_nothing_heavy(tmp_path: Path) -> None:
    """A look at some files must not wait for torch."""
    code = (
        "import runpy, sys\n"
        f"sys.argv = ['status.py', '--table', 'chains']\n"
        f"try: runpy.run_path({str(REPOSITORY / 'scripts' / 'status.py')!r}, run_name='__main__')\n"
        "except SystemExit as end: assert not end.code\n"
        "heavy = {'torch', 'hydra', 'omegaconf', 'lightning', 'numpy'}\n"
        "print('loaded:', *sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "loaded:"


def test_status_of_a_real_run(workplace: Workplace) -> None:
    """A run that fails is shown as failed until it is started again, and done at the end."""
    from phantomgrad_suite.runs.errors import UserError

    short = ("experiment=chains/implicit", "trainer.max_epochs=2")
    with pytest.raises(UserError, match=r"checkpoint_every_minutes must be a number"):
        workplace.train(*short, "checkpoint_every_minutes=-1")
    ((row, instance),) = folders.run_folders(Path("runs"))
    found = examine(row, instance, Path("runs"), Path("records"))
    assert (found.state, found.detail[:22]) == ("failed", "checkpoint_every_minut")
    folder = workplace.train(*short)
    assert folder.name == instance
    assert examine(row, instance, Path("runs"), Path("records")) == Run(row, instance, "done")
