"""Runs asked to stop by a signal: a checkpoint first, and the exit status of the signal."""

import signal
import sys

import pytest
from graph_data import REPOSITORY
from interruptions import assert_same_run, checkpoint
from training import Started

from phantomgrad_suite.checkpoint.last import Stopped
from phantomgrad_suite.runs.folder import read_attempt

DIGITS = (
    "experiment=digits/one_step",
    "trainer.max_epochs=2",
    "dataset.batch_size=216",  # five in an epoch
    "+trainer.limit_val_batches=1",
    "runtime.checkpoint.every_n_epochs=2",
)


def bomb(signum, step):
    target = f"_target_: interruptions.Signal, signum: {signum}, step: {step}"
    return f"+runtime.callbacks.bomb={{{target}}}"


@pytest.mark.parametrize(
    ("row", "signum", "step"),
    [
        (DIGITS, signal.SIGTERM, 7),
        (DIGITS, signal.SIGINT, 5),  # the last of an epoch
        # In the first of two batches of a step: after the second.
        ((*DIGITS, "+trainer.accumulate_grad_batches=2"), signal.SIGUSR2, 2),
    ],
)
def test_signal_saves_a_checkpoint(workplace, whole_runs, caplog, row, signum, step):
    whole = whole_runs.train(workplace, *row)
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with pytest.raises(Stopped) as stopped:
        workplace.train(*row, bomb(signum, step))
    assert stopped.value.code == 128 + signum
    name = signal.Signals(signum).name
    assert f"stopped by {name}" in caplog.text
    assert caplog.text.count(f"{name}: stopping at the next checkpoint") == 1
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    (path,) = workplace.path.glob("runs/**/last.ckpt")
    folder = path.parents[1]
    assert checkpoint(folder)["global_step"] == step
    attempt = read_attempt(folder)
    assert attempt["epochs"] == int(row[1].split("=")[1])
    assert attempt["epoch"] == checkpoint(folder)["epoch"] + 1
    assert "stopped" in attempt
    assert workplace.train(*row) == folder
    assert_same_run(folder, whole)


def test_signal_in_the_last_epoch_ends_the_table_after_the_run(script, workplace):
    rows = "experiment=chains/upg_k5_d0.5,chains/implicit"
    short = ("trainer.max_epochs=3", "runtime.checkpoint.every_n_epochs=3")
    outcome = script("-m", rows, *short, bomb(signal.SIGTERM, step=3))
    assert outcome.code == 128 + signal.SIGTERM
    assert "stopped by SIGTERM, at the end of the run" in outcome.out
    assert len(list(workplace.path.glob("runs/chains/upg_k5_d0.5/*/record.json"))) == 1
    assert not list(workplace.path.glob("runs/chains/implicit"))


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked, as on Linux")
def test_disturbed_runs_equal_the_undisturbed_ones(tmp_path):
    script = REPOSITORY / "benchmarks" / "soak.py"
    done = Started(tmp_path, "1", "--rows", "chains", script=script).end()  # make soak does more
    assert done.code == 0, done.out
    assert "every run equals the undisturbed one in every bit" in done.out
    assert int(done.out.splitlines()[-1].split()[0]) >= 1
