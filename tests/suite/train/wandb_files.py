"""Reads the file of an offline run of wandb.

The file is a log in blocks of 32 KiB: a header of seven bytes, then chunks of checksum, length,
kind (1: a whole record, 2: its first, 3: a middle, 4: its last part) and content.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_BLOCK, _HEADER = 32768, 7


@dataclass
class Offline:
    """An offline run."""

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
        kind = record.WhichOneof("record_type")
        if kind == "run":
            found.run = record.run
            found.config |= _items(record.run.config.update)
        elif kind == "config":
            found.config |= _items(record.config.update)
        elif kind == "history":
            found.history.append(_items(record.history.item))
        elif kind == "summary":
            found.summary |= _items(record.summary.update)
        elif kind == "metric":
            found.metrics[record.metric.name or record.metric.glob_name] = record.metric
        elif kind == "exit":
            found.exit_code = record.exit.exit_code
    return found


def _items(items: Any) -> dict[str, Any]:
    return {i.key or ".".join(i.nested_key): json.loads(i.value_json) for i in items}


def _records(content: bytes) -> Iterator[bytes]:
    assert content.startswith(b":W&B"), "not a file of wandb"
    place, parts = _HEADER, b""
    while place + _HEADER <= len(content):
        left = _BLOCK - place % _BLOCK
        if left < _HEADER:
            place += left
            continue
        length = int.from_bytes(content[place + 4 : place + 6], "little")
        kind, start = content[place + 6], place + _HEADER
        place = start + length
        parts += content[start:place]
        if kind in (1, 4):
            yield parts
            parts = b""
