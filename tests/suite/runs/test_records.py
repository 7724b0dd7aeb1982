"""Records: written atomically, read back unchanged, refused when damaged."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from phantomgrad_suite.runs.records import (
    Record,
    RecordError,
    Result,
    read_record,
    write_json,
    write_record,
)

RECORD = Record(
    row="table4/cox2_implicit",
    instance="seed42-fold3",
    label={"dataset": "COX2", "model": "IGNN", "method": "Implicit"},
    protocol="full",
    changes=[],
    result=Result("accuracy", 0.85, 12, 0.8, 0.82, 7),
    curves={"test/accuracy": [0.7, 0.85, 0.8]},
    parameters={"total": 37634, "trainable": 27010},
    data={"name": "COX2", "fingerprint": "sha256:ab", "graphs": 467},
    solver={"evaluations": 14.5},
    seconds={"total": 80.0, "epoch": 0.4},
    memory={"peak_bytes": 2**29, "kind": "process"},
    environment={"git": None, "versions": {"torch": "2.14.1"}},
    config={"seed": 42, "dataset": {"fold": 3}},
    config_hash="c0ffee",
    started="2026-01-01T00:00:00+00:00",
    finished="2026-01-01T00:01:20+00:00",
)


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "seed42-fold3.json"
    write_record(RECORD, path)
    assert read_record(path) == RECORD


def test_mode_survives_and_defaults_to_max_in_older_records(tmp_path: Path) -> None:
    """Older records have no mode."""
    record = replace(RECORD, result=Result("perplexity", 24.0, 12, 24.5, mode="min"))
    write_record(record, tmp_path / "r.json")
    assert read_record(tmp_path / "r.json").result.mode == "min"
    content = asdict(RECORD)
    del content["result"]["mode"]
    write_json(content, tmp_path / "old.json")
    assert read_record(tmp_path / "old.json") == RECORD
    content["result"]["mode"] = 1
    write_json(content, tmp_path / "bad.json")
    with pytest.raises(RecordError, match="mode is 1"):
        read_record(tmp_path / "bad.json")


def test_nan_and_infinity_become_null(tmp_path: Path) -> None:
    curves = {"test/accuracy": [0.5, float("nan"), float("inf")]}
    write_record(replace(RECORD, curves=curves), tmp_path / "r.json")
    assert read_record(tmp_path / "r.json").curves == {"test/accuracy": [0.5, None, None]}
    assert "NaN" not in (tmp_path / "r.json").read_text(encoding="utf-8")


def damaged(**changes: object) -> str:
    return json.dumps({**asdict(RECORD), **changes})


WITHOUT_ROW = json.dumps({k: v for k, v in asdict(RECORD).items() if k != "row"})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"r\.json"),
        (b"\xff\xfe\x00", "not a readable record"),
        ("{", "not a readable record"),
        ("[]", "does not have schema 1"),
        (damaged(schema=2), "does not have schema 1"),
        (WITHOUT_ROW, r"missing 1 required .*'row'"),
        (damaged(colour="blue"), "unexpected .*'colour'"),
        (damaged(result=None), "result is None"),
        (damaged(result={"metric": "accuracy"}), "missing 3 required"),
        (damaged(result={**asdict(RECORD.result), "best": "0.9"}), "best is '0.9'"),
        (damaged(curves=[1.0]), r"curves is \[1.0\]"),
        (damaged(curves={"test/accuracy": 1.0}), "curves.test/accuracy is 1.0"),
        (damaged(seconds=3), "seconds is 3"),
    ],
)
def test_a_damaged_record_is_named_and_refused(tmp_path, content, message) -> None:
    path = tmp_path / "r.json"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(RecordError, match=message) as caught:
        read_record(path)
    assert str(path) in str(caught.value)
