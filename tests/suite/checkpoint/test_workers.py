"""Lost processes of a distributed run, and processes that a failed run must not leave."""

import multiprocessing
import signal
from pathlib import Path

import pytest
import torch
from interruptions import assert_same_run
from training import Workplace, finish_two, start_two

from phantomgrad_suite.checkpoint.processes import explain_lost_worker
from phantomgrad_suite.runs.errors import UserError

TWO = (
    "trainer=ddp",
    "trainer.devices=2",
    "trainer.max_epochs=4",
    "runtime.checkpoint.every_n_epochs=1",
)


@pytest.mark.parametrize(
    "message",
    ["Read error [127.0.0.1]:44966: Connection reset by peer.", "Socket Timeout\nat line 3"],
)
def test_lost_worker_is_explained_in_a_line(message: str) -> None:
    expected = r"was lost or .* from the last checkpoint \("
    with pytest.raises(UserError, match=expected) as error, explain_lost_worker():
        raise RuntimeError(message)
    assert "\n" not in str(error.value)


def test_other_errors_are_left_alone() -> None:
    with pytest.raises(RuntimeError, match="mat1 and mat2") as error, explain_lost_worker():
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")
    assert not isinstance(error.value, UserError)


@pytest.mark.usefixtures("small_crops")
def test_failed_run_leaves_no_process(workplace: Workplace, folder_copy: Path) -> None:
    """A data-loading process would wait forever, and the run with it."""
    next(folder_copy.glob("val/**/*.*")).write_bytes(b"no image")
    narrow = ("model=mdeq_tiny", "model.channels=[8,8]", "model.head_channels=[2,2]")
    data = ("dataset=imagenet", f"runtime.dataset.root={folder_copy}", "dataset.batch_size=4")
    here = ("experiment=digits/upg_k5_d0.5", *narrow, *data, "model.features=8")
    before = set(multiprocessing.active_children())
    with pytest.raises(UserError, match="cannot be read as an image"):
        workplace.train(*here, "solver.max_evaluations=3", "runtime.dataset.workers=2")
    assert set(multiprocessing.active_children()) <= before


def finished(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    finish_two(folder, "experiment=digits/one_step", *TWO)
    (record,) = folder.glob("runs/**/record.json")
    return record.parent


@pytest.mark.skipif(
    not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
    reason="this build of torch has no gloo backend",
)
def test_run_that_loses_a_process_ends_and_resumes(tmp_path: Path) -> None:
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
