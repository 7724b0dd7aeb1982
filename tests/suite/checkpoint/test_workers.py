"""Runs of two processes: one run and one record, and what happens when one is lost."""

import signal

import pytest
from interruptions import assert_same_run
from training import Started, finish_two, needs_gloo, start_two

from phantomgrad_suite.checkpoint.distributed import explain_lost_worker
from phantomgrad_suite.released import verify
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.records import read_record

TWO = (  # Several processes save after every tenth step, here at the first of three in an epoch.
    *("experiment=digits/one_step", "trainer=ddp", "trainer.devices=2"),
    *("trainer.max_epochs=6", "dataset.batch_size=180", "runtime.checkpoint.every_minutes=0"),
    "solver=steps",
    "+solver.depth={_target_: phantomgrad.solvers.LogNormalPoissonDepth, mean: 4}",
)


@pytest.mark.parametrize("message", ["Socket Timeout\nat line 3", "Connection reset by peer"])
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
    (record,) = folder.glob("runs/**/record.json")
    return record.parent


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a whole run, and what its two processes print; the first starts the second."""
    folder = tmp_path_factory.mktemp("whole")
    ended = Started(folder, *TWO).end()
    assert ended.code == 0, ended.out
    return finished(folder), ended.out


@needs_gloo
def test_two_processes_make_one_run_and_one_record(whole, float32):
    """The second one finds the folder locked, and follows."""
    folder, out = whole
    assert "sync_dist" not in out
    assert out.count("accuracy best") == 1
    record = read_record(folder / "record.json")
    assert record.result.best > 0.3
    assert "trainer.devices=2" in record.changes
    assert record.environment["processes"] == 2
    depths = [3 * mean for mean in record.curves["solver/evaluations"]]
    whole_numbers = [round(depth) for depth in depths]  # as both processes draw the same
    assert depths == pytest.approx(whole_numbers, abs=1e-3)
    assert len({*whole_numbers}) > 1
    assert verify([str(folder)])  # by one process


@needs_gloo
def test_run_that_loses_a_process_ends_and_resumes(whole, tmp_path):
    """It resumes in the middle of an epoch, bit for bit."""
    first, second = start_two(tmp_path, *TWO)
    first.wait_for(lambda: list(tmp_path.glob("runs/**/last.ckpt")))
    second.process.kill()
    assert second.end().code == -signal.SIGKILL
    ended = first.end()
    assert ended.code == 1, ended.out
    assert "another process of this run was lost" in ended.out
    assert not list(tmp_path.glob("runs/**/record.json"))
    finish_two(tmp_path, *TWO)
    assert_same_run(finished(tmp_path), whole[0])
