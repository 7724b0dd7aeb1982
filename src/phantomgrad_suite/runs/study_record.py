"""The record of a finished study: a measurement that trains nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from phantomgrad_suite.runs.record_files import SCHEMA, RecordError, parse, read_json

KIND = "study"


@dataclass(frozen=True)
class Check:
    """A claim that the study puts to the test.

    Attributes:
        claim: in words, for example ``the two exact gradients agree``.
        value: what was measured; nan where that was not finite, once it has been a file.
        bound: what it had to exceed, or stay below, as the claim says.
        holds: whether it did.
    """

    claim: str
    value: float
    bound: float
    holds: bool

    @classmethod
    def above(cls, claim: str, value: float, bound: float) -> Check:
        """Return the check that ``value`` exceeds ``bound`` (nan does not)."""
        return cls(claim, value, bound, value > bound)

    @classmethod
    def below(cls, claim: str, value: float, bound: float) -> Check:
        """Return the check that ``value`` stays below ``bound`` (nan does not)."""
        return cls(claim, value, bound, value < bound)


@dataclass(frozen=True)
class StudyRecord:
    """Everything a table, a figure or a reader may ask of a finished study.

    Attributes:
        row: the study, for example ``figure1/tanh``.
        instance: which run of it, for example ``seed0``.
        protocol: ``full``, or ``reduced`` with ``changes`` saying what was reduced.
        changes: the overrides or the words by which the study differs from the full protocol.
        setting: what was measured where; the arguments of the study.
        numbers: what was measured, in the layout that the study documents.
        checks: the claims put to the test.
        seconds: ``total``, wall clock, and ``cpu``, processor time of the process.
        environment: git revision, versions, hardware, threads.
        config: the resolved configuration.
        config_hash: the hash of what in it determines the result.
        started: UTC, ISO 8601.
        finished: UTC, ISO 8601.
    """

    row: str
    instance: str
    protocol: str
    changes: list[str]
    setting: dict[str, Any]
    numbers: dict[str, Any]
    checks: list[Check]
    seconds: dict[str, float]
    environment: dict[str, Any]
    config: dict[str, Any]
    config_hash: str
    started: str
    finished: str
    kind: str = field(default=KIND)
    schema: int = field(default=SCHEMA)


def read_study(path: Path) -> StudyRecord:
    """Read the record of a study.

    Raises:
        RecordError: the file cannot be read, is no JSON, or is no study of this schema.
    """
    return parse_study(read_json(path), path)


def parse_study(content: Any, path: Path) -> StudyRecord:
    """Make a record of what ``path`` holds, or raise a :class:`RecordError`."""
    if isinstance(content, dict) and isinstance(content.get("checks"), list):
        try:
            content = {**content, "checks": [_check(**check) for check in content["checks"]]}
        except TypeError as error:
            raise RecordError(
                f"{path} holds no usable checks ({error}): delete it and run it again"
            ) from error
    return parse(content, path, StudyRecord)


def _check(claim: str, value: float | None, bound: float, holds: bool) -> Check:
    """Make a check of what a file holds, or raise a :class:`TypeError`."""
    value = float("nan") if value is None else value
    if not (isinstance(value, int | float) and isinstance(bound, int | float)):
        raise TypeError(f"value and bound must be numbers, got {value!r} and {bound!r}")
    return Check(claim, value, bound, bool(holds))
