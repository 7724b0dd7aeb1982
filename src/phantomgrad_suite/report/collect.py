"""The records of a table, sorted into runs of one and the same experiment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from phantomgrad_suite.report.errors import ReportError
from phantomgrad_suite.runs.records import Record, RecordError, StudyRecord, read_record, read_study

_AnyRecord = TypeVar("_AnyRecord", Record, StudyRecord)


def read_table_records(folder: Path, table: str) -> list[Record]:
    """Read the runs ``<folder>/<table>/**.json``.

    Raises:
        ReportError: a file is no record of a run, or is not where its record belongs.
    """
    return _read_all(folder, table, read_record)


def read_study_records(folder: Path, study: str) -> list[StudyRecord]:
    """Read the studies ``<folder>/<study>/**.json``.

    Raises:
        ReportError: a file is no record of a study, or is not where its record belongs.
    """
    return _read_all(folder, study, read_study)


def _read_all(folder: Path, name: str, read: Callable[[Path], _AnyRecord]) -> list[_AnyRecord]:
    records = []
    for path in sorted((folder / name).rglob("*.json")):
        try:
            record = read(path)
        except RecordError as error:
            raise ReportError(str(error)) from error
        place = path.relative_to(folder).as_posix()
        if place != f"{record.row}/{record.instance}.json":
            raise ReportError(
                f"{path} holds the record of {record.row}/{record.instance}: move it there"
            )
        records.append(record)
    return records


@dataclass(frozen=True)
class Group:
    """Runs that may share a cell: equal row, protocol, data, configuration and metric."""

    records: tuple[Record, ...]

    @property
    def row(self) -> str:
        """The experiment."""
        return self.records[0].row

    @property
    def dataset(self) -> str:
        """What the records call their data set."""
        return self.records[0].label.get("dataset", "")

    @property
    def metric(self) -> str:
        """The name of the metric."""
        return self.records[0].result.metric

    @property
    def reduction(self) -> str:
        """What was reduced against the full protocol, empty for full runs."""
        record = self.records[0]
        if record.protocol == "full" and not record.changes:
            return ""
        return f"{record.protocol}: {', '.join(record.changes) or 'not said how'}"

    @property
    def data(self) -> str:
        """The fingerprint of the data."""
        return _fingerprint(self.records[0])

    @property
    def config(self) -> str:
        """The hash of the configuration."""
        return self.records[0].config_hash


def group_records(records: Iterable[Record]) -> list[Group]:
    """Sort records into groups, in the order of their first run."""
    groups: dict[tuple[object, ...], list[Record]] = {}
    for record in records:
        key = (
            record.row,
            record.protocol,
            tuple(record.changes),
            _fingerprint(record),
            record.config_hash,
            record.result.metric,
        )
        groups.setdefault(key, []).append(record)
    return [Group(tuple(members)) for members in groups.values()]


def describe(group: Group, others: Sequence[Group]) -> str:
    """Say by what a group differs from the full protocol, and from ``others`` of its data set.

    Data are named wherever rows that stand under each other differ in them, a configuration
    wherever one row has several.
    """
    parts = [group.reduction] if group.reduction else []
    peers = [g for g in others if g.reduction == group.reduction]
    if len({g.data for g in peers} | {group.data}) > 1:
        parts.append(f"data {_short(group.data)}")
    twins = {g.config for g in peers if g.row == group.row and g.data == group.data}
    if len(twins | {group.config}) > 1:
        parts.append(f"configuration {_short(group.config)}")
    return "; ".join(parts)


def _fingerprint(record: Record) -> str:
    return str(record.data.get("fingerprint", ""))


def _short(digest: str) -> str:
    return digest.rsplit(":", 1)[-1][:8] or "unknown"
