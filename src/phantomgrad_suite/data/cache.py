"""Tensors that are costly to make, kept in a file that is checked before it is believed."""

from __future__ import annotations

import errno
import hashlib
import logging
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

log = logging.getLogger(__name__)


def cached(path: Path, source: str, make: Callable[[], list[Tensor]]) -> list[Tensor]:
    """Return tensors from ``path`` or, where it does not hold them whole, from ``make``.

    Args:
        path: of the cache file; written whole or not at all, unless its folder is read-only.
        source: identifies what the tensors are made of; a file of another source is remade.
        make: makes them.
    """
    tensors = _read(path, source)
    if tensors is None:
        tensors = make()
        _write(path, source, tensors)
    return tensors


def digest(tensors: Iterable[Tensor]) -> str:
    """Return the SHA-256 of the contents of tensors on the CPU, in hexadecimal."""
    content = hashlib.sha256()
    for tensor in tensors:
        content.update(tensor.contiguous().numpy().data)
    return content.hexdigest()


def _read(path: Path, source: str) -> list[Tensor] | None:
    if not path.exists():
        return None
    try:
        kept = torch.load(path, weights_only=True)
        whole, same = digest(kept["tensors"]) == kept["sha256"], kept["source"] == source
    except Exception:
        whole = same = False
    if whole and same:
        return kept["tensors"]  # type: ignore[no-any-return]
    reason = "of other data" if whole else "damaged"
    log.warning("%s is %s: it is made again", path, reason)
    return None


def _write(path: Path, source: str, tensors: list[Tensor]) -> None:
    content = {"source": source, "sha256": digest(tensors), "tensors": tensors}
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        _check_writable(path.parent)
        with temporary.open("wb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        log.warning("%s could not be written (%s): it is made again next time", path, error)
    finally:
        with suppress(OSError):
            temporary.unlink()


def _check_writable(folder: Path) -> None:
    """Raise where nobody may write: root could, but the folder is marked as not ours to change."""
    if not folder.stat().st_mode & 0o222:
        raise PermissionError(errno.EACCES, "the folder is read-only", str(folder))
