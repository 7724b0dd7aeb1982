"""Curves read from the log of a run that may be writing it."""

from __future__ import annotations

from pathlib import Path

from dashboard.workshop import log
from hypothesis import given
from hypothesis import strategies as st

from phantomgrad_suite.dashboard.curves import latest, logged, thinned

HEADER = "epoch,step,test/accuracy,train/loss"


def test_lines_of_an_epoch_are_one_point(tmp_path: Path) -> None:
    log(tmp_path, "0,9,0.5,", "0,9,,2.0", "1,19,0.75,", "1,19,,1.0", header=HEADER)
    assert logged(tmp_path) == {"test/accuracy": [0.5, 0.75], "train/loss": [2.0, 1.0]}


def test_later_attempt_counts(tmp_path: Path) -> None:
    """The tenth version comes behind the second, and replaces the epochs that it did again."""
    log(tmp_path, "0,0,0.1,", "1,0,0.2,5", "2,0,0.3,", version=2, header=HEADER)
    log(tmp_path, "1,0,0.7,", "2,0,0.8,", version=10, header=HEADER)
    found = logged(tmp_path)
    assert found == {"test/accuracy": [0.1, 0.7, 0.8]}  # train/loss was of an epoch done again


def test_gaps_and_numbers_that_are_none(tmp_path: Path) -> None:
    log(tmp_path, "0,0,nan,1", "1,0,inf,", "3,0,0.5,word", header=HEADER)
    assert logged(tmp_path) == {"test/accuracy": [None, None, 0.5], "train/loss": [1.0, None, None]}
    assert latest(logged(tmp_path)) == {"test/accuracy": 0.5, "train/loss": 1.0}


def test_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    log(tmp_path, "0,0,0.5,1", "1,0", "2,0,1,2,3,4", "x,0,1,1", "1.5,0,1,1", header=HEADER)
    assert logged(tmp_path) == {"test/accuracy": [0.5], "train/loss": [1.0]}


def test_unreadable_log_is_no_obstacle(tmp_path: Path) -> None:
    log(tmp_path, "0,0.5")
    path = tmp_path / "csv/version_1/metrics.csv"
    path.parent.mkdir()
    path.write_bytes(b"epoch,test/accuracy\n\xff\xfe,\n")
    assert logged(tmp_path) == {"test/accuracy": [0.5]}
    assert logged(tmp_path / "nowhere") == {}


@given(st.integers(0, 400), st.integers(2, 50))
def test_thinned_keeps_both_ends_and_the_order(length: int, points: int) -> None:
    numbered = [float(i) for i in range(length)]
    found = thinned(numbered, points)
    assert len(found) == min(length, points)
    assert found[:1] == numbered[:1]
    assert found[-1:] == numbered[-1:]
    assert found == sorted(set(numbered) & set(found))
