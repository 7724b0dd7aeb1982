"""Files written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(content: bytes, path: Path) -> None:
    """Write ``content`` to ``path``: temporary file, fsync, rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
