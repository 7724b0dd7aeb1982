"""``attempt.json``: it exists while a run is executed, and after it has failed."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest

from phantomgrad_suite.runs.attempts import FILE, log_attempt, log_failure, read_attempt
from phantomgrad_suite.runs.errors import UserError


def test_attempt_names_the_process_and_is_removed_on_success(tmp_path: Path) -> None:
    with log_attempt(tmp_path, epochs=7):
        note = read_attempt(tmp_path)
        assert (note["host"], note["pid"], note["epochs"]) == (platform.node(), os.getpid(), 7)
        assert "failed" not in note
    assert not (tmp_path / FILE).exists()


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (UserError("COX2 is not there: fetch it"), "COX2 is not there: fetch it"),
        (ValueError("lr must be positive\nat line 3"), "ValueError: lr must be positive"),
        (KeyError(), "KeyError"),
    ],
)
def test_failure_is_logged_in_one_line(tmp_path: Path, error: Exception, line: str) -> None:
    with pytest.raises(type(error)), log_attempt(tmp_path, epochs=7):
        raise error
    note = read_attempt(tmp_path)
    assert (note["failed"], note["epochs"]) == (line, 7)


def test_next_attempt_replaces_the_failure(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="disk"), log_attempt(tmp_path):
        raise OSError("disk")
    with log_attempt(tmp_path):
        assert "failed" not in read_attempt(tmp_path)


@pytest.mark.parametrize("end", [SystemExit(143), KeyboardInterrupt()])
def test_stopped_run_has_not_failed(tmp_path: Path, end: BaseException) -> None:
    """Requeued, or ended by a signal: the file keeps the start, and adds when it stopped."""
    with pytest.raises(type(end)), log_attempt(tmp_path, epochs=7):
        raise end
    note = read_attempt(tmp_path)
    assert note["started"] <= note["stopped"]
    assert note["epochs"] == 7
    assert "failed" not in note
    with log_attempt(tmp_path):
        assert "stopped" not in read_attempt(tmp_path)


def test_first_of_several_processes_logs_the_reason(tmp_path: Path) -> None:
    """The others fail only because the first one is gone."""

    def miss_the_other() -> None:
        (tmp_path / FILE).write_text('{"failed": "ValueError: nan"}')
        raise RuntimeError("connection closed by peer")

    with pytest.raises(RuntimeError), log_attempt(tmp_path):
        miss_the_other()
    assert read_attempt(tmp_path) == {"failed": "ValueError: nan"}


def test_following_process_logs_failures_only(tmp_path: Path) -> None:
    with log_failure(tmp_path):
        assert not (tmp_path / FILE).exists()
    with pytest.raises(ValueError, match="nan"), log_failure(tmp_path):
        raise ValueError("nan")
    assert read_attempt(tmp_path)["failed"] == "ValueError: nan"


def test_attempt_names_the_slurm_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "815")
    with log_attempt(tmp_path):
        assert read_attempt(tmp_path)["job"] == "815"
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "812")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
    with log_attempt(tmp_path):
        assert read_attempt(tmp_path)["job"] == "812_3"


def test_unwritable_file_does_not_stop_a_run(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    done = False
    with log_attempt(tmp_path):
        done = True
    assert done
    assert read_attempt(tmp_path) == {}
