"""Checkpoint files: written whole, checked before they are believed, two generations of them."""

from __future__ import annotations

import errno
import io
import logging
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO

from phantomgrad_suite.runs.errors import UserError

log = logging.getLogger(__name__)

# Of the disk, the network or the machine, not of the file's content.
_UNREADABLE = (
    *(errno.EACCES, errno.EPERM, errno.EIO, errno.ESTALE),
    *(errno.EMFILE, errno.ENFILE, errno.ENOMEM),
)


class WholeCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint beside its place, and moves it there in one step.

    The one that stood there stays as :func:`previous_of` it, in case a disk damages the new one.

    Lightning's own way is through the system's temporary folder. Where that is another disk, the
    move is a copy, and a copy cut short stands where the last good checkpoint stood.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        """Write ``checkpoint`` to ``path``, or raise and leave ``path`` as it is."""
        content = io.BytesIO()
        torch.save(checkpoint, content)
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name}.part")
        try:
            with part.open("wb") as file:
                file.write(content.getbuffer())
                file.flush()
                os.fsync(file.fileno())
            _keep_previous(target)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)


def previous_of(path: Path) -> Path:
    """Return where the checkpoint before the one at ``path`` is kept."""
    return path.with_suffix(f".previous{path.suffix}")


def _keep_previous(target: Path) -> None:
    """Give the file a second name, so that at no moment there is none under the first."""
    spare = target.with_name(f".{target.name}.link")
    spare.unlink(missing_ok=True)
    try:
        os.link(target, spare)
    except FileNotFoundError:  # nothing was there
        return
    except OSError:  # a disk that knows no second names
        target.replace(previous_of(target))
        return
    spare.replace(previous_of(target))
    spare.unlink(missing_ok=True)  # two names of one file are not renamed into each other


def newest_whole(path: Path, *, keeper: bool = True) -> Path | None:
    """Return the checkpoint at ``path``, the one before if it is damaged, ``None`` without either.

    Args:
        path: of the last checkpoint.
        keeper: whether damaged files are put out of the way, as one process of a run should.
    """
    damaged = 0
    for candidate in filter(Path.exists, (path, previous_of(path))):
        wrong = damage(candidate)
        if wrong is None:
            return candidate
        damaged += 1
        if keeper:
            aside = candidate.with_name(f"{candidate.name}.damaged")
            candidate.replace(aside)
            log.warning("%s is damaged (%s): kept as %s", candidate, wrong, aside.name)
    if damaged and keeper:
        log.warning("no checkpoint in %s is whole: the run starts afresh", path.parent)
    return None


def damage(path: Path) -> str | None:
    """Return what is wrong with a checkpoint file, ``None`` if it is as it was written.

    The checksum of every part is compared (CRC-32, which ``torch.load`` does not look at), and the
    frame around the parts is read as torch will read it.

    Raises:
        UserError: the file cannot be read, which is not its fault.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            part = archive.testzip()
        if part is not None:
            return f"the checksum of {part} is wrong"
        torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError:
        return None  # whole, but no checkpoint of ours: that is for its reader to say
    except MemoryError:
        raise
    except Exception as error:  # a changed byte in the wrong place may show as any of them
        if isinstance(error, OSError) and error.errno in _UNREADABLE:
            raise UserError(
                f"{path} cannot be read now ({error.strerror}): it is left as it is; start the "
                "same command again when it can"
            ) from error
        return f"{type(error).__name__}: {str(error).partition('.')[0]}"
    return None
