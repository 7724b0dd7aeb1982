"""The record of a finished training run: its schema and its reader."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from phantomgrad_suite.runs.record_files import SCHEMA, RecordError, parse, read_json

_WORDS = ("metric", "mode")  # of a result; the rest are numbers


@dataclass(frozen=True)
class Result:
    """The number a table prints, in percent or in the unit of the metric.

    Attributes:
        metric: for example ``accuracy``.
        best: the best test value over the epochs (what the paper's tables hold).
        best_epoch: its epoch, from 1.
        last: the test value after the last epoch.
        selected: the test value at the epoch chosen on validation data; ``None`` without such.
        selected_epoch: that epoch, from 1.
        mode: which end of the metric is the good one, ``max`` or ``min``.
    """

    metric: str
    best: float
    best_epoch: int
    last: float
    selected: float | None = None
    selected_epoch: int | None = None
    mode: str = "max"


@dataclass(frozen=True)
class Record:
    """Everything a table, a figure or a reader may ask of a finished run.

    Attributes:
        row: the experiment, for example ``table4/cox2_implicit``.
        instance: which run of it, for example ``seed42-fold3``.
        label: what the table calls the row (``dataset``, ``model``, ``method``).
        protocol: ``full``, or ``reduced`` with ``changes`` saying what was reduced.
        changes: the overrides or the words by which the run differs from the full protocol.
        result: the number of the table.
        curves: values by epoch, for example ``test/accuracy``.
        parameters: ``total`` and ``trainable`` counts.
        data: name, fingerprint and sizes of the data.
        solver: statistics of the solver and the adjoint solver, means over the run.
        seconds: ``total``, and means of ``epoch``, ``forward``, ``backward``, ``step``.
        memory: ``peak_bytes`` and ``kind`` (``process`` or ``cuda``).
        environment: revision, versions, hardware, threads, processes; of a run that was resumed
            also ``earlier``, start, revision and hardware of each attempt before the last.
        config: the resolved configuration.
        config_hash: the hash of what in it determines the result.
        started: UTC, ISO 8601.
        finished: UTC, ISO 8601.
    """

    row: str
    instance: str
    label: dict[str, str]
    protocol: str
    changes: list[str]
    result: Result
    curves: dict[str, list[float]]
    parameters: dict[str, int]
    data: dict[str, Any]
    solver: dict[str, float]
    seconds: dict[str, float]
    memory: dict[str, Any]
    environment: dict[str, Any]
    config: dict[str, Any]
    config_hash: str
    started: str
    finished: str
    schema: int = field(default=SCHEMA)


def read_record(path: Path) -> Record:
    """Read the record of a run.

    Raises:
        RecordError: the file cannot be read, is no JSON, or is no record of this schema.
    """
    return parse_record(read_json(path), path)


def parse_record(content: Any, path: Path) -> Record:
    """Make a record of what ``path`` holds, or raise a :class:`RecordError`."""
    if isinstance(content, dict) and isinstance(content.get("result"), dict):
        try:
            content = {**content, "result": Result(**content["result"])}
        except TypeError as error:
            raise RecordError(
                f"{path} holds no usable result ({error}): delete it and run it again"
            ) from error
    record = parse(content, path, Record)
    wrong = _wrong_content(record)
    if wrong:
        raise RecordError(f"{path} holds no usable {', '.join(wrong)}: delete it and run it again")
    return record


def _wrong_content(record: Record) -> list[str]:
    wrong = []
    if not all(isinstance(curve, list) for curve in record.curves.values()):
        wrong.append("curves")
    numbers = [value for name, value in asdict(record.result).items() if name not in _WORDS]
    if not all(isinstance(getattr(record.result, name), str) for name in _WORDS) or not all(
        value is None or isinstance(value, int | float) for value in numbers
    ):
        wrong.append("result")
    return wrong
