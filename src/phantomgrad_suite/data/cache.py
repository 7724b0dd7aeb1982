"""A cache of tensors that are slow to make, in files that are verified before they are used."""

from __future__ import annotations

import errno
import hashlib
import logging
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from pathlib import Path

import torch
from filelock import FileLock
from torch import Tensor

from phantomgrad_suite.runs.files import atomic_write

log = logging.getLogger(__name__)


def cached(path: Path, source: str, make: Callable[[], list[Tensor]]) -> list[Tensor]:
    """Return the tensors in the file ``path``, or make them and write that file.

    A file is used only if it is undamaged and was made from the same ``source``. Of several
    processes one makes the tensors, and the others wait for its file. If the file cannot be
    written, a warning is logged and the tensors are made in every run.
    """
    tensors = _read(path, source)
    if tensors is not None:
        return tensors
    with ExitStack() as stack:
        with suppress(OSError):  # in a read-only folder no process writes the file
            _check_writable(path.parent)
            stack.enter_context(FileLock(path.with_name(f".{path.name}.lock")))
        tensors = _read(path, source)
        if tensors is None:
            if path.exists():
                log.warning("%s is damaged or made from other data: making it again", path)
            tensors = make()
            _write(path, source, tensors)
    return tensors


def file_times(paths: Iterable[Path]) -> str:
    """Return a hash of the names, sizes and times of files, quicker than one of their content."""
    stats = [("/".join(path.parts[-2:]), path.stat()) for path in sorted(paths)]
    lines = [f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in stats]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def digest(tensors: Iterable[Tensor]) -> str:
    """Return the SHA-256 of the contents of tensors on the CPU, in hexadecimal."""
    content = hashlib.sha256()
    for tensor in tensors:
        content.update(tensor.contiguous().numpy().data)
    return content.hexdigest()


def _read(path: Path, source: str) -> list[Tensor] | None:
    try:
        kept = torch.load(path, weights_only=True)
        valid = kept["source"] == source and kept["sha256"] == digest(kept["tensors"])
    except Exception:  # a damaged file can raise almost anything
        return None
    return kept["tensors"] if valid else None


def _write(path: Path, source: str, tensors: list[Tensor]) -> None:
    content = {"source": source, "sha256": digest(tensors), "tensors": tensors}
    try:
        _check_writable(path.parent)
        with atomic_write(path) as temporary, temporary.open("wb") as file:
            torch.save(content, file)
    except OSError as error:
        log.warning("%s could not be written (%s): it is made in every run", path, error)


def _check_writable(folder: Path) -> None:
    # The system lets root write into a folder that is marked as read-only.
    if not folder.stat().st_mode & 0o222:
        raise PermissionError(errno.EACCES, "the folder is read-only", str(folder))
