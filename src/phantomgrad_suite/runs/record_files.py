"""Records as files: written whole or not at all, and read with a line for what is wrong."""

from __future__ import annotations

import json
import math
import re
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_origin, get_type_hints

from phantomgrad_suite.runs.files import atomic_write

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

SCHEMA = 1

_T = TypeVar("_T", bound="DataclassInstance")

# An indented list of numbers. Strings hold no line break in JSON, so they cannot match.
_NUMBERS = re.compile(r"\[\n([-+.,\s0-9eEnul]+)\n\s*\]")


class RecordError(Exception):
    """A record that cannot be used; the message names the file and says what to do."""


def write_json(content: Any, path: Path) -> None:
    """Write ``content`` to ``path`` whole or not at all (temporary file, fsync, rename)."""
    text = json.dumps(_finite(content), indent=1, sort_keys=True, allow_nan=False)
    with atomic_write(path) as temporary:
        temporary.write_text(_NUMBERS.sub(_on_one_line, text) + "\n", encoding="utf-8")


def write_record(record: DataclassInstance, path: Path) -> None:
    """Write a record atomically as JSON."""
    write_json(asdict(record), path)


def read_json(path: Path) -> Any:
    """Return what a file holds.

    Raises:
        RecordError: the file cannot be read, or is no JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RecordError(
            f"{path} is no readable record ({error}): restore it, or delete it and run it again"
        ) from error


def parse(content: Any, path: Path, kind: type[_T]) -> _T:
    """Make a record of ``kind`` of what ``path`` holds.

    Raises:
        RecordError: it is of another schema, lacks an attribute, or has one of the wrong kind.
    """
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise RecordError(f"{path} is no record of schema {SCHEMA}: delete it and run it again")
    known = {f.name: f.default is MISSING for f in fields(kind)}
    missing = sorted(name for name, needed in known.items() if needed and name not in content)
    unknown = sorted(set(content) - set(known))
    if missing or unknown:
        raise RecordError(
            f"{path} is no whole record (missing: {missing}, unknown: {unknown}): "
            "delete it and run it again"
        )
    wrong = [
        name
        for name, hint in get_type_hints(kind).items()
        if name in content and not isinstance(content[name], get_origin(hint) or hint)
    ]
    if wrong:
        raise RecordError(f"{path} holds no usable {', '.join(wrong)}: delete it and run it again")
    return kind(**content)


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
