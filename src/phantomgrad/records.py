"""The record of a finished run: its schema, its reader and its writer (standard library only).

One run, one JSON file, ``<records>/<row>/<instance>.json``. The row is the path of the experiment
file (``table4/cox2_implicit``), the instance its seed and fold (``seed42-fold3``). Tables and
figures are made from these files and from ``paper.csv`` alone.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, get_origin, get_type_hints

SCHEMA = 1

# An indented list of numbers. Strings hold no line break in JSON, so they cannot match.
_NUMBERS = re.compile(r"\[\n([-+.,\s0-9eEnul]+)\n\s*\]")


class RecordError(Exception):
    """A record that cannot be used; the message names the file and says what to do."""


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
    """

    metric: str
    best: float
    best_epoch: int
    last: float
    selected: float | None = None
    selected_epoch: int | None = None


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
        environment: git revision, versions, hardware, threads.
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


def write_json(content: Any, path: Path) -> None:
    """Write ``content`` to ``path`` whole or not at all (temporary file, fsync, rename)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        text = json.dumps(_finite(content), indent=1, sort_keys=True, allow_nan=False)
        with temporary.open("w", encoding="utf-8") as file:
            file.write(_NUMBERS.sub(_on_one_line, text) + "\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_record(record: Record, path: Path) -> None:
    """Write ``record`` atomically as JSON."""
    write_json(asdict(record), path)


def read_record(path: Path) -> Record:
    """Read a record.

    Raises:
        RecordError: the file cannot be read, is no JSON, or is no record of this schema.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RecordError(
            f"{path} is no readable record ({error}): restore it, or delete it and run it again"
        ) from error
    return _parse(content, path)


def read_records(folder: Path) -> Iterator[Record]:
    """Read every record below ``folder``, in the order of their paths."""
    for path in sorted(folder.rglob("*.json")):
        yield read_record(path)


def _parse(content: Any, path: Path) -> Record:
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise RecordError(f"{path} is no record of schema {SCHEMA}: delete it and run it again")
    names = {f.name for f in fields(Record)}
    missing, unknown = sorted(names - set(content)), sorted(set(content) - names)
    if missing or unknown:
        raise RecordError(
            f"{path} is no whole record (missing: {missing}, unknown: {unknown}): "
            "delete it and run it again"
        )
    try:
        record = Record(**{**content, "result": Result(**content["result"])})
    except TypeError as error:
        raise RecordError(
            f"{path} holds no usable result ({error}): delete it and run it again"
        ) from error
    wrong = _wrong_kinds(record)
    if wrong:
        raise RecordError(f"{path} holds no usable {', '.join(wrong)}: delete it and run it again")
    return record


def _wrong_kinds(record: Record) -> list[str]:
    """Return the attributes whose values are not of the kind the schema says."""
    wrong = [
        name
        for name, kind in get_type_hints(Record).items()
        if not isinstance(getattr(record, name), get_origin(kind) or kind)
    ]
    if "curves" not in wrong and not all(isinstance(c, list) for c in record.curves.values()):
        wrong.append("curves")
    numbers = [value for name, value in asdict(record.result).items() if name != "metric"]
    if not isinstance(record.result.metric, str) or not all(
        value is None or isinstance(value, int | float) for value in numbers
    ):
        wrong.append("result")
    return wrong


def _on_one_line(match: re.Match[str]) -> str:
    return f"[{' '.join(match.group(1).split())}]"


def _finite(content: Any) -> Any:
    """Replace what JSON has no word for (nan, inf) by null."""
    if isinstance(content, float) and not math.isfinite(content):
        return None
    if isinstance(content, dict):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return content
