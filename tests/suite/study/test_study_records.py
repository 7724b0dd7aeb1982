"""Records of studies: round trip, distinct from those of runs, refused when damaged."""

import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from runs.test_records import RECORD

from phantomgrad_suite.runs.records import (
    Check,
    RecordError,
    StudyRecord,
    read_any,
    read_record,
    read_study,
    write_record,
)

STUDY = StudyRecord(
    row="figure1/tanh",
    instance="seed0",
    protocol="reduced",
    changes=["4 of 50,000 samples"],
    setting={"size": 6, "steps": [1, 2]},
    numbers={"exact": {"agreement": {"mean": 0.25, "percentiles": [0.125, 0.5]}}},
    checks=[Check("the gradients agree", 0.99995, 0.9999, True)],
    seconds={"total": 3.0, "cpu": 2.5},
    environment={"git": None, "threads": 1},
    config={"seed": 0},
    config_hash="c0ffee",
    started="2026-01-01T00:00:00+00:00",
    finished="2026-01-01T00:00:03+00:00",
)


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "figure1" / "tanh" / "seed0.json"
    write_record(STUDY, path)
    assert read_study(path) == read_any(path) == STUDY


@pytest.mark.parametrize(
    ("value", "holds"), [(0.5, "below"), (1, ""), (2, "above"), (math.nan, "")]
)
def test_checks_are_strict_and_fail_for_nan(value: float, holds: str) -> None:
    assert Check.above("x", value, 1.0).holds == (holds == "above")
    assert Check.below("x", value, 1.0).holds == (holds == "below")


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_check_of_what_is_not_finite_is_nan_when_read_back(tmp_path: Path, value: float) -> None:
    """JSON has no word for either; the verdict is a field of its own."""
    write_record(replace(STUDY, checks=[Check.below("x", value, 1.0)]), tmp_path / "r.json")
    (check,) = read_study(tmp_path / "r.json").checks
    assert math.isnan(check.value)
    assert (check.claim, check.bound, check.holds) == ("x", 1.0, False)


def test_neither_reader_takes_the_other_kind(tmp_path: Path) -> None:
    write_record(RECORD, tmp_path / "run.json")
    write_record(STUDY, tmp_path / "study.json")
    with pytest.raises(RecordError, match=r"run\.json is not a valid record .*'curves'"):
        read_study(tmp_path / "run.json")
    with pytest.raises(RecordError, match=r"study\.json is not a valid record .*unexpected"):
        read_record(tmp_path / "study.json")


def damaged(**changes: object) -> str:
    return json.dumps({**asdict(STUDY), **changes})


CHECK = asdict(STUDY.checks[0])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (damaged(kind="walk"), "not a valid record"),  # so it is read as the record of a run
        (damaged(numbers=[1.0]), r"numbers is \[1.0\]"),
        (damaged(checks=[3]), "checks is 3"),
        (damaged(checks=[{"claim": "x"}]), "missing 3 required"),
        (damaged(checks=[{**CHECK, "value": "much"}]), "value is 'much'"),
    ],
)
def test_damaged_record_of_a_study_is_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "r.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(RecordError, match=message) as caught:
        read_any(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
