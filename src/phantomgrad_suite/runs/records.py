"""Records of finished runs and studies: the files that tables and figures are made from.

A run or study leaves one JSON file, ``<records>/<row>/<instance>.json``. The row is the path of
the experiment or study file (``table4/cox2_implicit``, ``figure1/tanh``), the instance its seed
and fold (``seed42-fold3``). Standard library only.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_origin, get_type_hints

from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.files import atomic_write

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

SCHEMA = 1

_T = TypeVar("_T", bound="DataclassInstance")

# An indented list of numbers. JSON strings hold no line break, so they cannot match.
_NUMBERS = re.compile(r"\[\n([-+.,\s0-9eEnul]+)\n\s*\]")


class RecordError(UserError):
    """A record that cannot be used; the message names the file and what to do."""


@dataclass(frozen=True)
class Result:
    """The result of a run, as a fraction or in the unit of the metric.

    Attributes:
        metric: for example ``accuracy``.
        best: the best test value over the epochs (what the paper's tables hold).
        best_epoch: its epoch, counted from 1.
        last: the test value after the last epoch.
        selected: the test value at the epoch chosen on validation data, if there are any.
        selected_epoch: that epoch, counted from 1.
        mode: whether the larger (``max``) or the smaller (``min``) value is better.
    """

    metric: str
    best: float
    best_epoch: int
    last: float
    selected: float | None = None
    selected_epoch: int | None = None
    mode: str = "max"

    def __post_init__(self) -> None:
        """Refuse values of the wrong type, as a damaged file may hold them."""
        for field in fields(self):
            value = getattr(self, field.name)
            is_name = field.name in ("metric", "mode")
            if not isinstance(value, str if is_name else int | float | None):
                raise TypeError(f"{field.name} is {value!r}")


@dataclass(frozen=True, kw_only=True)
class _Finished:
    """The common attributes of the records of runs and studies.

    Attributes:
        row: for example ``table4/cox2_implicit``.
        instance: seed and fold, for example ``seed42-fold3``.
        protocol: ``full``, or ``reduced`` if it is smaller than the paper's.
        changes: the differences from the full protocol, as overrides or descriptions.
        seconds: wall-clock time, ``total`` and, of a run, per ``epoch``; processor time as
            ``epoch_cpu`` of a run and ``cpu`` of a study.
        environment: git revision, versions, hardware, threads, processes. A resumed run also has
            ``earlier``: start, revision and hardware of each attempt before the last.
        config: the resolved configuration.
        config_hash: the hash of the part of the configuration that determines the result.
        started: UTC, ISO 8601.
        finished: UTC, ISO 8601.
    """

    row: str
    instance: str
    protocol: str
    changes: list[str]
    seconds: dict[str, float]
    environment: dict[str, Any]
    config: dict[str, Any]
    config_hash: str
    started: str
    finished: str
    schema: int = SCHEMA


@dataclass(frozen=True, kw_only=True)
class Record(_Finished):
    """The record of a finished training run.

    Attributes:
        label: how tables name the row (``dataset``, ``model``, ``method``).
        result: the number in the table.
        curves: values by epoch, for example ``test/accuracy``.
        parameters: ``total`` and ``trainable`` counts.
        data: name, fingerprint and sizes of the data.
        solver: means over training of what the solver spent, for example ``evaluations``.
        memory: ``peak_bytes`` and how they were measured (``kind``).
    """

    label: dict[str, str]
    result: Result
    curves: dict[str, list[float]]
    parameters: dict[str, int]
    data: dict[str, Any]
    solver: dict[str, float]
    memory: dict[str, Any]


@dataclass(frozen=True)
class Check:
    """A claim that a study tests.

    Attributes:
        claim: for example ``the two exact gradients agree``.
        value: the measured value; a file stores NaN and infinity as null, read as NaN.
        bound: the value that it must exceed or stay below, according to the claim.
        holds: whether it does.
    """

    claim: str
    value: float
    bound: float
    holds: bool

    @classmethod
    def above(cls, claim: str, value: float, bound: float) -> Check:
        """Return the check that ``value`` exceeds ``bound``; it fails for NaN."""
        return cls(claim, value, bound, value > bound)

    @classmethod
    def below(cls, claim: str, value: float, bound: float) -> Check:
        """Return the check that ``value`` stays below ``bound``; it fails for NaN."""
        return cls(claim, value, bound, value < bound)

    @classmethod
    def from_json(cls, claim: str, value: float | None, bound: float, holds: bool) -> Check:
        """Return a check read from a file, where null stands for a value that was not finite."""
        value = float("nan") if value is None else value
        if not (isinstance(value, int | float) and isinstance(bound, int | float)):
            raise TypeError(f"value and bound must be numbers, got {value!r} and {bound!r}")
        return cls(claim, value, bound, bool(holds))


@dataclass(frozen=True, kw_only=True)
class StudyRecord(_Finished):
    """The record of a finished study: a measurement without training.

    Attributes:
        setting: the arguments of the study.
        numbers: the measurements, in the layout that the study documents.
        checks: the claims that were tested.
    """

    setting: dict[str, Any]
    numbers: dict[str, Any]
    checks: list[Check]
    kind: str = "study"


def read_record(path: Path) -> Record:
    """Read the record of a run; a :class:`RecordError` names a file that cannot be used."""
    record = _parse(read_json(path), path, Record, result=lambda found: Result(**found))
    if not all(isinstance(curve, list) for curve in record.curves.values()):
        raise RecordError(f"{path} has unusable curves: delete it and repeat the run")
    return record


def read_study(path: Path) -> StudyRecord:
    """Read the record of a study; a :class:`RecordError` names a file that cannot be used."""
    return _parse(
        read_json(path),
        path,
        StudyRecord,
        checks=lambda found: [Check.from_json(**check) for check in found],
    )


def read_any(path: Path) -> Record | StudyRecord:
    """Read the record of a run or of a study."""
    content = read_json(path)
    is_study = isinstance(content, dict) and content.get("kind") == "study"
    return read_study(path) if is_study else read_record(path)


def read_records(folder: Path) -> Iterator[Record | StudyRecord]:
    """Read every record below ``folder``, in the order of their paths."""
    for path in sorted(folder.rglob("*.json")):
        yield read_any(path)


def write_json(content: Any, path: Path) -> None:
    """Write ``content`` to ``path`` atomically, lists of numbers on one line."""
    text = json.dumps(_finite(content), indent=1, sort_keys=True, allow_nan=False)
    with atomic_write(path) as temporary:
        temporary.write_text(_NUMBERS.sub(_on_one_line, text) + "\n", encoding="utf-8")


def write_record(record: DataclassInstance, path: Path) -> None:
    """Write a record atomically as JSON."""
    write_json(asdict(record), path)


def read_json(path: Path) -> Any:
    """Return the content of a JSON file; a :class:`RecordError` names one that is damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RecordError(
            f"{path} is no readable record ({error}): restore it, or delete it and repeat the run"
        ) from error


def _parse(content: Any, path: Path, kind: type[_T], **nested: Callable[[Any], Any]) -> _T:
    """Return the JSON ``content`` of ``path`` as a record of ``kind``.

    Args:
        content: what the file holds.
        path: of the file, for error messages.
        kind: the dataclass of the record.
        nested: for attributes that are not plain JSON, the function that makes their value.

    Raises:
        RecordError: the schema differs, or an attribute is missing, unknown or of a wrong type.
    """
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise RecordError(f"{path} is no record of schema {SCHEMA}: delete it and repeat the run")
    required = {field.name: field.default is MISSING for field in fields(kind)}
    missing = sorted(name for name, needed in required.items() if needed and name not in content)
    unknown = sorted(set(content) - set(required))
    if missing or unknown:
        raise RecordError(
            f"{path} is no complete record (missing: {missing}, unknown: {unknown}): "
            "delete it and repeat the run"
        )
    values = dict(content)
    for name, make in nested.items():
        try:
            values[name] = make(content[name])
        except TypeError as error:
            raise RecordError(
                f"{path} has an unusable {name} ({error}): delete it and repeat the run"
            ) from error
    wrong = [
        name
        for name, hint in get_type_hints(kind).items()
        if name in values and not isinstance(values[name], get_origin(hint) or hint)
    ]
    if wrong:
        raise RecordError(f"{path} has unusable {', '.join(wrong)}: delete it and repeat the run")
    return kind(**values)


def _on_one_line(match: re.Match[str]) -> str:
    return f"[{' '.join(match.group(1).split())}]"


def _finite(content: Any) -> Any:
    """Replace NaN and infinity, which JSON cannot express, by null."""
    if isinstance(content, float) and not math.isfinite(content):
        return None
    if isinstance(content, dict):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return content
