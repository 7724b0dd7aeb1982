"""Lost processes of a distributed run, and processes that a failed run must not leave."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from interruptions import assert_same_run
from training import ON_CPU, SCRIPT, finish_two, needs_gloo, start_two

from phantomgrad_suite.checkpoint.processes import explain_lost_worker
from phantomgrad_suite.runs.errors import UserError

TWO = (  # Several processes save after every tenth step, here at the first of nine in an epoch.
    "trainer=ddp",
    "trainer.devices=2",
    "trainer.max_epochs=3",
    "+trainer.limit_val_batches=1",
    "runtime.checkpoint.every_minutes=0",
)


@pytest.mark.parametrize(
    "message",
    ["Read error [127.0.0.1]:44966: Connection reset by peer.", "Socket Timeout\nat line 3"],
)
def test_lost_worker_is_explained_in_a_line(message):
    expected = r"was lost or .* from the last checkpoint \("
    with pytest.raises(UserError, match=expected) as error, explain_lost_worker():
        raise RuntimeError(message)
    assert "\n" not in str(error.value)


def test_other_errors_are_left_alone():
    with pytest.raises(RuntimeError, match="mat1 and mat2") as error, explain_lost_worker():
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")
    assert not isinstance(error.value, UserError)


@pytest.mark.usefixtures("small_crops")
def test_failed_run_leaves_no_process(workplace, folder_copy):
    """A data-loading process would wait forever, and the run with it."""
    next(folder_copy.glob("val/**/*.*")).write_bytes(b"no image")
    narrow = ("model=mdeq_tiny", "model.channels=[8,8]", "model.head_channels=[2,2]")
    data = ("dataset=imagenet", f"runtime.dataset.root={folder_copy}", "dataset.batch_size=4")
    here = ("experiment=digits/upg_k5_d0.5", *narrow, *data, "model.features=8")
    before = set(multiprocessing.active_children())
    with pytest.raises(UserError, match="cannot be read as an image"):
        workplace.train(*here, "solver.max_evaluations=3", "runtime.dataset.workers=2")
    assert set(multiprocessing.active_children()) <= before


def finished(folder):
    folder.mkdir(exist_ok=True)
    finish_two(folder, "experiment=digits/one_step", *TWO)
    (record,) = folder.glob("runs/**/record.json")
    return record.parent


def second_processes(first):
    """Return the process that Lightning has started, once it has."""
    found = []
    for child in Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text().split():
        with suppress(OSError):  # of the short-lived ones that ask git
            if b"LOCAL_RANK=1" in Path(f"/proc/{child}/environ").read_bytes():
                found.append(int(child))
    return found


def wait_until(condition, process):
    while not (found := condition()):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.02)
    return found


_with_children = pytest.mark.skipif(
    not Path("/proc/self/task").exists() or not list(Path("/proc/self/task").glob("*/children")),
    reason="this system does not list the children of a process",
)


@needs_gloo
@_with_children
def test_process_that_ends_before_training_leaves_none(tmp_path):
    """The second process is still starting; it would wait for the first one."""
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), "experiment=digits/one_step", *TWO, ON_CPU],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    (second,) = wait_until(lambda: second_processes(process), process)
    process.kill()
    try:
        process.communicate(timeout=240)  # the second process holds the pipe until it ends
    except subprocess.TimeoutExpired:
        os.kill(second, signal.SIGKILL)
        raise
    assert process.returncode == -signal.SIGKILL


@needs_gloo
def test_run_that_loses_a_process_ends_and_resumes(tmp_path):
    """It resumes in the middle of an epoch, bit for bit."""
    (tmp_path / "lost").mkdir()
    first, second = start_two(tmp_path / "lost", "experiment=digits/one_step", *TWO)
    first.wait_for(lambda: list(tmp_path.glob("lost/runs/**/last.ckpt")))
    second.process.kill()
    assert second.end().code == -signal.SIGKILL
    ended = first.end()
    assert ended.code == 1, ended.out
    assert "another process of this run was lost" in ended.out
    assert not list(tmp_path.glob("lost/runs/**/record.json"))
    assert_same_run(finished(tmp_path / "lost"), finished(tmp_path / "whole"))
