"""What is in a file that wandb has written offline: its records, as wandb itself would send them.

The file is a log in blocks of 32 KiB: seven bytes of its own, then chunks of a checksum, a length
and a kind (1: whole, 2: first, 3: middle, 4: last part of a record).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_BLOCK, _IDENTITY, _HEADER = 32768, 7, 7


@dataclass
class Offline:
    """A run as its file holds it."""

    run: Any = None
    config: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    exit_code: int | None = None


def read_offline(path: Path) -> Offline:
    """Read the file of a run, with the messages of the installed wandb."""
    from wandb.proto.wandb_internal_pb2 import Record

    found = Offline()
    for content in _records(path.read_bytes()):
        record = Record()
        record.ParseFromString(content)
        _enter(record, found)
    return found


def _enter(record: Any, found: Offline) -> None:
    kind = record.WhichOneof("record_type")
    if kind == "run":
        found.run = record.run
        found.config |= {u.key: json.loads(u.value_json) for u in record.run.config.update}
    elif kind == "config":
        found.config |= {u.key: json.loads(u.value_json) for u in record.config.update}
    elif kind == "history":
        found.history.append(_items(record.history.item))
    elif kind == "summary":
        found.summary |= _items(record.summary.update)
    elif kind == "metric":
        found.metrics[record.metric.name or record.metric.glob_name] = record.metric
    elif kind == "exit":
        found.exit_code = record.exit.exit_code


def _items(items: Any) -> dict[str, Any]:
    return {i.key or ".".join(i.nested_key): json.loads(i.value_json) for i in items}


def _records(content: bytes) -> Iterator[bytes]:
    assert content.startswith(b":W&B"), "this is no file of wandb"
    place, parts = _IDENTITY, b""
    while place + _HEADER <= len(content):
        left = _BLOCK - place % _BLOCK
        if left < _HEADER:
            place += left
            continue
        length = int.from_bytes(content[place + 4 : place + 6], "little")
        kind = content[place + 6]
        parts += content[place + _HEADER : place + _HEADER + length]
        place += _HEADER + length
        if kind in (1, 4):
            yield parts
            parts = b""
