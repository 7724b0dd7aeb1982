"""Lost processes of a distributed run, and processes that a failed run must not leave."""

import signal

import pytest
from interruptions import assert_same_run
from training import finish_two, needs_gloo, start_two

from phantomgrad_suite.checkpoint.processes import explain_lost_worker
from phantomgrad_suite.runs.errors import UserError

TWO = (  # Several processes save after every tenth step, here at the first of three in an epoch.
    "trainer=ddp",
    "trainer.devices=2",
    *("trainer.max_epochs=2", "dataset.batch_size=180"),
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


def finished(folder):
    folder.mkdir(exist_ok=True)
    finish_two(folder, "experiment=digits/one_step", *TWO)
    (record,) = folder.glob("runs/**/record.json")
    return record.parent


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
