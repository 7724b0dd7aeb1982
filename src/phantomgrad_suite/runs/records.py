"""Records of finished runs and studies: the files that tables and figures are made from.

A run or study leaves ``record.json`` in its folder, and a line among the results
(:mod:`phantomgrad_suite.runs.archive`). Its row is the path of the experiment or study file
(``table4/cox2_implicit``, ``figure1/tanh``), its instance seed and fold (``seed42-fold3``).
Standard library only.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.files import write_file
from phantomgrad_suite.runs.identity import check_row

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

SCHEMA = 1

# An indented list of numbers. JSON strings hold no line break, so they cannot match.
_NUMBERS = re.compile(r"\[\n([-+.,\s0-9eEnul]+)\n\s*\]")


class RecordError(UserError):
    """A record that cannot be used; the message names the file and what to do."""


@dataclass(frozen=True)
class Result:
    """The result of a run, as a fraction or in the unit of the metric.

    ``best`` over the epochs is what the paper's tables hold, ``selected`` the test value at the
    epoch chosen on validation data. Epochs count from 1; ``mode`` says whether the larger
    (``max``) or the smaller (``min``) value is better.
    """

    metric: str
    best: float
    best_epoch: int
    last: float
    selected: float | None = None
    selected_epoch: int | None = None
    mode: str = "max"

    @classmethod
    def missing(cls, metric: str, mode: str) -> Result:
        """Return that of a run that diverged."""
        return cls(metric, best=math.nan, best_epoch=0, last=math.nan, mode=mode)


@dataclass(frozen=True, kw_only=True)
class _Finished:
    """The common attributes of the records of runs and studies.

    Attributes:
        protocol: ``full``, or ``reduced`` if it is smaller than the paper's.
        changes: the differences from the full protocol, as overrides or descriptions.
        seconds: wall-clock time, ``total`` and, of a run, per ``epoch``; processor time as
            ``epoch_cpu`` of a run and ``cpu`` of a study.
        environment: git revision, versions, hardware, threads, processes; of a run ``compiled``,
            the mode in which f was compiled, if it was. ``load`` has the load average of the
            machine at ``start`` and ``end`` (of the last attempt, None where there is none), and
            of a run ``cpu_over_wall``, over all epochs; older records lack it. A resumed run also
            has ``earlier``: start, revision and hardware of each attempt before the last.
        config_hash: the hash of the part of the configuration that determines the result.
        started: UTC, ISO 8601, as ``finished``.
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
        curves: values by epoch, for example ``test/accuracy``.
        data: name, fingerprint and sizes of the data.
        solver: means over training of what the solver spent, for example ``evaluations``.
        memory: ``peak_bytes`` and how they were measured (``kind``).
        weights: the files of the weights of ``last``, and of ``selected`` or ``best``, in the run
            folder: ``file``, ``sha256``, ``epoch`` and ``step``. Older records have none.
        diverged: of a run that ended in NaN or infinity, ``step``, the number of steps until then,
            ``epoch``, the mean training ``loss`` of this epoch until then, and the ``reason``; else
            empty. Such a run has the curves of the epochs before, no result (NaN), no weights.
    """

    label: dict[str, str]
    result: Result
    curves: dict[str, list[float]]
    parameters: dict[str, int]
    data: dict[str, Any]
    solver: dict[str, float]
    memory: dict[str, Any]
    weights: dict[str, dict[str, Any]] = field(default_factory=dict)
    diverged: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Check:
    """A claim that a study tests: its ``value`` must exceed or stay below ``bound``.

    NaN and infinity are read back as NaN.
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


@dataclass(frozen=True, kw_only=True)
class StudyRecord(_Finished):
    """The record of a finished study: its arguments, what it measured, and claims it tested."""

    setting: dict[str, Any]
    numbers: dict[str, Any]
    checks: list[Check]
    kind: str = "study"


AnyRecord = Record | StudyRecord


def read_record(path: Path) -> Record:
    """Read the record of a run."""
    record = read_any(path)
    if not isinstance(record, Record):
        raise RecordError(f"{path} is the record of a study: name one of a run")
    return record


def read_any(path: Path) -> AnyRecord:
    """Read the record of a run or of a study; a :class:`RecordError` names an unusable file."""
    return record_of(read_json(path), path)


def record_of(content: Any, path: Path | str) -> AnyRecord:
    """Return the JSON ``content`` of ``path`` as the record of a run or of a study."""
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise RecordError(f"{path} does not have schema {SCHEMA}: delete it and repeat the run")
    kind = StudyRecord if content.get("kind") == "study" else Record
    try:
        record = kind(**_with_parts(content))
        check_row(f"{record.row}/{record.instance}")
        return record
    except (TypeError, UserError) as error:
        raise RecordError(
            f"{path} is not a valid record ({error}): delete it and repeat the run"
        ) from error


def made_from_changes(record: AnyRecord) -> bool:
    """Return whether a run was made from a changed checkout, so that none can repeat it."""
    attempts = [record.environment, *record.environment.get("earlier", ())]
    return any(str(attempt.get("git")).endswith("+dirty") for attempt in attempts)


def write_json(content: Any, path: Path) -> None:
    """Write ``content`` to ``path`` atomically, lists of numbers on one line."""
    text = json.dumps(_finite(content), indent=1, sort_keys=True, allow_nan=False)
    text = _NUMBERS.sub(lambda match: f"[{' '.join(match[1].split())}]", text)
    write_file(path, f"{text}\n".encode())


def write_record(record: DataclassInstance, path: Path) -> None:
    """Write a record atomically as JSON."""
    write_json(asdict(record), path)


def as_json(record: DataclassInstance) -> dict[str, Any]:
    """Return a record as JSON has it, with null in the place of NaN and infinity."""
    return _finite(asdict(record))  # type: ignore[no-any-return]


def read_json(path: Path) -> Any:
    """Return the content of a JSON file; a :class:`RecordError` names one that is damaged."""
    return _read(path, json.loads)


def read_lines(path: Path) -> list[Any]:
    """Return the lines of a file of JSON, in the same way."""
    return _read(path, lambda text: [json.loads(line) for line in text.splitlines()])  # type: ignore[no-any-return]


def _read(path: Path, parse: Callable[[str], Any]) -> Any:
    try:
        return parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RecordError(
            f"{path} is not a readable record ({error}): "
            "restore it, or delete it and repeat the run"
        ) from error


def _with_parts(content: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a record with its result or checks, where null stands for NaN."""
    found = dict(content)
    if "result" in found:
        found["result"] = Result(**_numbers(found["result"], "best", "last"))
    if "checks" in found:
        found["checks"] = [Check(**_numbers(check, "value", "bound")) for check in found["checks"]]
    return found


def _numbers(content: dict[str, Any], *names: str) -> dict[str, Any]:
    return {**content, **{name: math.nan for name in names if content.get(name, 0) is None}}


def _finite(content: Any) -> Any:
    """Replace NaN and infinity, which JSON cannot express, by null."""
    if isinstance(content, float) and not math.isfinite(content):
        return None
    if isinstance(content, dict):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return content
