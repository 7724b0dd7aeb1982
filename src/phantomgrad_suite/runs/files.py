"""Files that are written completely or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from phantomgrad_suite.runs.errors import UserError


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path next to ``path``; on success it replaces ``path`` in one step.

    The content is flushed to disk before the rename, so that a crash leaves the old file or the
    new one. If the body raises, the temporary file is removed and ``path`` is unchanged; an
    :class:`OSError` names ``path``, which those of a full disk do not do by themselves.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        with suppress(OSError):  # of a file system that has become read-only
            temporary.unlink(missing_ok=True)


def write_file(path: Path, content: bytes | memoryview) -> None:
    """Write ``content`` to ``path``, completely or not at all."""
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)


def check_writable(folder: Path) -> None:
    """Create ``folder`` and a file in it, or raise :class:`UserError`: before hours of work."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(
            f"{folder} cannot be written ({error.strerror}): make it writable, or choose another "
            "folder in runtime.paths"
        ) from error
