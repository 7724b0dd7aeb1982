"""Finished runs by the row: ``<records>/<row>.jsonl``.

The first line of a file is what all of its records share of row, configuration and environment; a
line for each record has the rest of it, such as its result. Rows that a table makes of one row by
varying its settings (``label.varied``; k and λ in Figure 3) are in one file, named for that row.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock

from phantomgrad_suite.runs.files import write_file
from phantomgrad_suite.runs.records import (
    AnyRecord,
    Record,
    RecordError,
    StudyRecord,
    as_json,
    read_lines,
    record_of,
)

_R = TypeVar("_R", Record, StudyRecord)
_SUFFIX = ".jsonl"
_SHARED = (  # may be in the first line
    *("schema", "kind", "row", "label", "protocol", "changes", "config", "config_hash", "setting"),
    *("parameters", "data", "environment"),
)


class Archive:
    """The records in a folder, which are read at first use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def file(self, row: str, varied: Sequence[str] = ()) -> Path:
        """Return the file of a row; ``varied`` are the settings that its table varies."""
        name = row.rpartition("/")[0] if varied else row
        return self.folder / f"{name}{_SUFFIX}"

    def file_of(self, record: AnyRecord) -> Path:
        """Return the file in which a record belongs."""
        return self.file(record.row, record.config.get("label", {}).get("varied") or ())

    @cached_property
    def records(self) -> dict[tuple[str, str], AnyRecord]:
        """All records by row and instance, in the order of both.

        Raises:
            RecordError: a file is damaged, or two lines have one row and instance.
        """
        found: dict[tuple[str, str], AnyRecord] = {}
        for path in sorted(self.folder.rglob(f"*{_SUFFIX}")):
            for record in _read(path):
                key = (record.row, record.instance)
                if key in found:
                    raise RecordError(f"{path} repeats the record of {'/'.join(key)}: remove one")
                found[key] = record
        return {key: found[key] for key in sorted(found, key=_order)}

    def of(self, kind: type[_R], *rows: str) -> list[_R]:
        """Return the records of a kind in ``rows``, each given in full or as a folder of rows."""
        return [
            record
            for place in rows
            for (row, _), record in self.records.items()
            if isinstance(record, kind) and (row == place or row.startswith(f"{place}/"))
        ]

    def holds(self, record: AnyRecord) -> bool:
        """Return whether a record of this row and instance is there; reads one file."""
        path = self.file_of(record)
        keys = {(known.row, known.instance) for known in _read(path)} if path.exists() else set()
        return (record.row, record.instance) in keys

    def add(self, record: AnyRecord) -> None:
        """Add a record, or replace that of its row and instance; several processes may do so."""
        path = self.file_of(record)
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / ".lock", fallback_to_soft=False):
            known = {(r.row, r.instance): r for r in (_read(path) if path.exists() else ())}
            known[record.row, record.instance] = record
            contents = [as_json(known[key]) for key in sorted(known, key=_order)]
            described = [{k: v for k, v in each.items() if k in _SHARED} for each in contents]
            shared = _shared(described)
            lines = [shared, *(_rest(content, shared) for content in contents)]
            text = "".join(f"{_dumped(line)}\n" for line in lines)
            write_file(path, text.encode())
        vars(self).pop("records", None)


def _read(path: Path) -> Iterator[AnyRecord]:
    shared, *rest = read_lines(path) or [{}]
    for number, own in enumerate(rest, start=2):
        try:
            content = _joined(shared, own)
        except AttributeError as error:
            raise RecordError(f"{path}, line {number} must be an object like line 1") from error
        yield record_of(content, f"{path}, line {number}")


def _order(key: tuple[str, str]) -> tuple[str, ...]:
    row, instance = key
    return *row.split("/"), instance


def _dumped(content: Any) -> str:
    return json.dumps(content, sort_keys=True, allow_nan=False, separators=(",", ":"))


def _shared(contents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the entries that all have, those of nested mappings one by one."""
    found: dict[str, Any] = {}
    for key, value in contents[0].items():
        values = [content[key] for content in contents if key in content]
        if len(values) < len(contents):
            continue
        if all(isinstance(v, dict) for v in values):
            if nested := _shared(values):
                found[key] = nested
        elif all(v == value and _dumped(v) == _dumped(value) for v in values):
            found[key] = value
    return found


def _rest(content: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    """Return ``content`` without what is ``shared``."""
    left: dict[str, Any] = {}
    for key, value in content.items():
        if key not in shared:
            left[key] = value
        elif isinstance(value, dict) and (nested := _rest(value, shared[key])):
            left[key] = nested
    return left


def _joined(shared: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Return ``own`` with what is ``shared``."""
    both = {
        key: _joined(shared[key], value) if key in shared else value for key, value in own.items()
    }
    return {**shared, **both}
