"""Records of runs and studies: written atomically, read back unchanged, refused when damaged."""

import json
import math
from dataclasses import asdict, replace

import pytest
from report.conftest import record

from phantomgrad_suite.runs.records import (
    Check,
    RecordError,
    Result,
    StudyRecord,
    read_any,
    read_record,
    write_record,
)

RECORD = record(
    *("table4/cox2_implicit", "seed42-fold3", [0.7, 0.85, 0.8]),
    result=Result("accuracy", 0.85, 12, 0.8, 0.82, 7),
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


def test_round_trip(tmp_path):
    for content in (RECORD, STUDY):
        path = tmp_path / content.row / f"{content.instance}.json"
        write_record(content, path)
        assert read_any(path) == content


def test_nan_and_infinity_become_null(tmp_path):
    curves = {"test/accuracy": [0.5, float("nan"), float("inf")]}
    write_record(replace(RECORD, curves=curves), tmp_path / "r.json")
    assert read_record(tmp_path / "r.json").curves == {"test/accuracy": [0.5, None, None]}
    write_record(replace(RECORD, result=Result.missing("accuracy", "max")), tmp_path / "d.json")
    assert math.isnan(read_record(tmp_path / "d.json").result.best)
    assert "NaN" not in (tmp_path / "r.json").read_text(encoding="utf-8")


def damaged(content=RECORD, **changes):
    return json.dumps({**asdict(content), **changes})


CHECK = asdict(STUDY.checks[0])
WITHOUT_ROW = json.dumps({k: v for k, v in asdict(RECORD).items() if k != "row"})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not a readable record"),
        (damaged(schema=2), "does not have schema 1"),
        (WITHOUT_ROW, r"missing 1 required .*'row'"),
        (damaged(colour="blue"), "unexpected .*'colour'"),
        (damaged(result=0.9), "not a mapping"),
        (damaged(row="../../x"), r"not a valid record \(label\.row must be"),  # a path of a release
        (damaged(STUDY, checks=[{**CHECK, "valu": 1}]), "unexpected .*'valu'"),
    ],
)
def test_a_damaged_record_is_named_and_refused(tmp_path, content, message):
    path = tmp_path / "r.json"
    path.write_text(content)
    with pytest.raises(RecordError, match=message) as caught:
        read_any(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
