"""``attempt.json``: it exists while a run is executed, and after it has failed."""

import json
import os
import platform

import pytest

from phantomgrad_suite.runs.errors import SettingError, UserError
from phantomgrad_suite.runs.folder import ATTEMPT, log_attempt, read_attempt


def test_attempt_names_the_process_and_is_removed_on_success(tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "815")
    with log_attempt(tmp_path, epochs=7):
        expected = {"host": platform.node(), "pid": os.getpid(), "job": "815", "epochs": 7}
        assert read_attempt(tmp_path) == expected
    assert not (tmp_path / ATTEMPT).exists()
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "812")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
    with log_attempt(tmp_path):
        assert read_attempt(tmp_path)["job"] == "812_3"


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (UserError("COX2 is not there: fetch it"), {"failed": "COX2 is not there: fetch it"}),
        (ValueError("lr is wrong\nat line 3"), {"failed": "ValueError: lr is wrong"}),
        (KeyError(), {"failed": "KeyError"}),
        (KeyboardInterrupt(), {"stopped": True}),
    ],
)
def test_end_is_logged_in_one_line(tmp_path, error, end):
    with pytest.raises(type(error)), log_attempt(tmp_path, epochs=7):
        raise error
    note = read_attempt(tmp_path)
    assert {**note, **end, "epochs": 7} == note
    with log_attempt(tmp_path):
        assert not {"failed", "stopped"} & read_attempt(tmp_path).keys()


def test_setting_that_cannot_work_leaves_no_attempt(tmp_path):
    """Or that of before: a run that was stopped is still one."""
    for before in ({}, {"stopped": True, "epoch": 3}):
        if before:
            (tmp_path / ATTEMPT).write_text(json.dumps(before))
        with pytest.raises(SettingError), log_attempt(tmp_path):
            raise SettingError("optimizer with lr=x does not work")
        assert read_attempt(tmp_path) == before
