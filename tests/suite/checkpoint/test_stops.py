"""Runs that are asked to stop: a checkpoint first, and an exit status that says so."""

from __future__ import annotations

import logging
import signal
import time
from pathlib import Path

import pytest
from interruptions import Watched, assert_same_run, checkpoint
from training import Script, Workplace, start

from phantomgrad_suite.checkpoint.signals import Stopped

DIGITS = ("experiment=digits/one_step", "trainer.max_epochs=3", "checkpoint_every_n_epochs=3")
CHAINS = ("experiment=chains/upg_k5_d0.5", "trainer.max_epochs=12", "checkpoint_every_n_epochs=12")


def bomb(signum: int, **when: int) -> str:
    ((unit, moment),) = when.items()
    return f"+callbacks.bomb={{_target_: interruptions.Signal, signum: {signum}, {unit}: {moment}}}"


@pytest.mark.parametrize(
    ("row", "when", "steps"),
    [
        (DIGITS, {"step": 7}, 7),
        (DIGITS, {"epoch": 2}, 34),  # while it evaluates: at the end of the epoch
        (DIGITS, {"step": 17}, 17),  # the last of an epoch
        (CHAINS, {"step": 4}, 4),  # every one is the last of its epoch
    ],
)
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_signal_is_met_with_a_checkpoint(
    workplace: Workplace,
    caplog: pytest.LogCaptureFixture,
    row: tuple[str, ...],
    when: dict[str, int],
    steps: int,
    signum: int,
) -> None:
    whole = workplace.train(*row, "paths.runs=whole")
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with pytest.raises(Stopped) as stopped:
        workplace.train(*row, bomb(signum, **when))
    assert stopped.value.code == 128 + signum
    name = signal.Signals(signum).name
    assert f"stopped by {name}" in caplog.text
    at_once = row == DIGITS and when == {"step": 7}
    assert caplog.text.count(f"{name}: stopping at the next checkpoint") == (not at_once)
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    (path,) = workplace.path.glob("runs/**/last.ckpt")
    folder = path.parents[1]
    assert checkpoint(folder)["global_step"] == steps
    note = read_attempt(folder)
    assert (note["epochs"], note["checkpoint_every_minutes"]) == (int(row[1].split("=")[1]), 10)
    assert "stopped" in note
    assert "failed" not in note
    assert workplace.train(*row) == folder
    assert_same_run(folder, whole)


class Steps(logging.Handler):
    """Keeps what is said of signals, and after how many steps."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[tuple[int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "SIGTERM" in record.getMessage():
            self.said.append((len(Watched.losses), record.getMessage().partition(",")[0]))


def test_wish_that_waits_for_the_end_of_the_epoch_is_answered_at_once(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loader that does not know its place has no checkpoint in the middle of an epoch."""
    monkeypatch.setattr("phantomgrad_suite.checkpoint.timed.knows_its_place", lambda _: False)
    steps = Steps()
    monkeypatch.setattr(
        logging.getLogger("phantomgrad_suite.checkpoint.timed"), "handlers", [steps]
    )
    watched = "+callbacks.watched={_target_: interruptions.Watched}"
    with pytest.raises(Stopped):
        workplace.train(*DIGITS, bomb(signal.SIGTERM, step=7), watched)
    assert steps.said == [
        (7, "SIGTERM: stopping at the next checkpoint"),
        (17, "stopped by SIGTERM in epoch 1"),
    ]


def test_signal_in_the_last_epoch_ends_the_table_after_the_run(
    script: Script, workplace: Workplace
) -> None:
    rows = ("-m", "experiment=chains/upg_k5_d0.5,chains/implicit", *CHAINS[1:])
    outcome = script(*rows, bomb(signal.SIGTERM, step=12))
    assert outcome.code == 128 + signal.SIGTERM
    assert "stopped by SIGTERM, at the end of the run" in outcome.out
    assert len(list(workplace.path.glob("runs/chains/upg_k5_d0.5/*/record.json"))) == 1
    assert not list(workplace.path.glob("runs/chains/implicit"))


def test_processes_that_load_data_leave_signals_to_the_main_one(
    workplace: Workplace, folder_root: Path
) -> None:
    """A scheduler tells them all."""
    here = (
        *("experiment=digits/upg_k5_d0.5", "dataset=imagenet", "model=mdeq_tiny"),
        *("model.channels=[8,8]", "model.head_channels=[2,2]", "model.features=8"),
        *("solver.max_evaluations=3", "dataset.batch_size=4", f"dataset.root={folder_root}"),
        *("dataset.workers=1", "trainer.max_epochs=2", "+trainer.limit_val_batches=1"),
    )
    group = "+callbacks.bomb={_target_: interruptions.SignalToAll, signum: 15, step: 2}"
    with pytest.raises(Stopped):
        workplace.train(*here, group)
    assert list(workplace.path.glob("runs/**/last.ckpt"))


def test_asked_twice_at_the_keyboard_stops_at_once(workplace: Workplace) -> None:
    twice = bomb(signal.SIGINT, step=3), bomb(signal.SIGINT, step=3).replace("bomb=", "second=")
    with pytest.raises(SystemExit) as stopped:
        workplace.train(*DIGITS, *twice)
    assert not isinstance(stopped.value, Stopped)
    assert not list(workplace.path.glob("runs/**/last.ckpt"))


def wait_for(pattern: str, folder: Path) -> Path:
    deadline = time.monotonic() + 120
    while not (found := list(folder.glob(pattern))):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found[0]


def test_script_exits_as_a_process_ended_by_the_signal(tmp_path: Path) -> None:
    """And a table goes no further: its next rows would be killed in their middle."""
    here = ("-m", "experiment=chains/upg_k5_d0.5,chains/implicit", "checkpoint_every_n_epochs=1")
    process = start(tmp_path, *here, OMP_NUM_THREADS="1")
    wait_for("runs/**/last.ckpt", tmp_path)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM, out
    assert "stopped by SIGTERM in epoch" in out
    assert not list(tmp_path.glob("runs/chains/implicit"))
