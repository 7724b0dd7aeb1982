"""Checkpoint files: written completely or not at all, checked before use, two generations."""

import errno
import io
import logging
import zipfile
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO

from phantomgrad_suite.runs.files import atomic_write, check_writable
from phantomgrad_suite.runs.folder import log_epoch

_DAMAGE = (None, errno.EINVAL, errno.ENOENT)  # the last: another process has just renamed it

log = logging.getLogger(__name__)


class WholeCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint completely, then moves it into place; keeps the one before.

    Lightning's own implementation goes through the temporary folder of the system. If that is on
    another disk, the last step is a copy, and an interrupted copy destroys the last checkpoint.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        content, target = io.BytesIO(), Path(path)
        torch.save(checkpoint, content)  # in memory: on a full disk torch raises no OSError
        with atomic_write(target) as temporary:
            temporary.write_bytes(content.getbuffer())
            if target.exists():
                target.replace(previous_of(target))
        log_epoch(target.parents[1], checkpoint["epoch"] + 1)


def previous_of(path: Path) -> Path:
    """Return where the checkpoint before the one at ``path`` is kept."""
    return path.with_suffix(f".previous{path.suffix}")


def newest_intact(path: Path, *, tidy: bool) -> Path | None:
    """Return the checkpoint at ``path`` or, if it is damaged, the one before; ``None`` without.

    With ``tidy``, for one process of a run, damaged files are renamed, unfinished ones removed.
    """
    if tidy:
        check_writable(path.parent)
        for unfinished in path.parent.glob(f".{path.name}.*"):
            unfinished.unlink()
    for candidate in filter(Path.exists, (path, previous_of(path))):
        if (reason := damage(candidate)) is None:
            log.info("resuming from %s", candidate)
            return candidate
        log.warning("%s is damaged (%s)", candidate, reason)
        if tidy:
            log.warning("it is renamed to %s.damaged", candidate.name)
            candidate.replace(candidate.with_name(f"{candidate.name}.damaged"))
    return None


def damage(path: Path) -> str | None:
    """Return how a checkpoint file is damaged, or ``None`` if it is as it was written.

    Compares the CRC-32 of every part, which ``torch.load`` ignores, and reads what is around them.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            if part := archive.testzip():
                return f"the checksum of {part} is wrong"
        torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # a changed byte can cause almost any of them
        unread = isinstance(error, OSError) and error.errno not in _DAMAGE
        if unread or isinstance(error, MemoryError):  # of the disk, the network or the machine
            raise
        return f"{type(error).__name__}: {str(error).partition('.')[0]}"
    return None
