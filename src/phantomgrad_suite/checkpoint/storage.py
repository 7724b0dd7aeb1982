"""Checkpoint files: written atomically, verified before use, two generations of them."""

import errno
import io
import logging
import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO
from torch import Tensor, nn

from phantomgrad_suite.checkpoint.finite import nonfinite
from phantomgrad_suite.checkpoint.state import GENERATORS, PROVENANCE
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.files import atomic_write, check_writable
from phantomgrad_suite.runs.folder import log_epoch

_SIZES = "sizes"
PARTS = (
    *("state_dict", "optimizer_states", "lr_schedulers", "loops", "callbacks"),
    *(PROVENANCE, GENERATORS),
)

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
        checkpoint[_SIZES] = _sizes(checkpoint)
        torch.save(checkpoint, content)  # in memory: on a full disk torch raises no OSError
        with atomic_write(target) as temporary:
            temporary.write_bytes(content.getbuffer())
            if target.exists():
                target.replace(previous_of(target))
        log_epoch(target.parents[1], checkpoint["epoch"] + 1)


def _sizes(checkpoint: dict[str, Any]) -> dict[str, int]:
    """Return the number of values in each part of a checkpoint, a tensor being one."""

    def count(node: Any) -> int:
        members = node.values() if isinstance(node, dict) else node
        return sum(map(count, members)) if isinstance(node, dict | list | tuple) else 1

    return {name: count(part) for name, part in checkpoint.items()}


def _moments(states: list[dict[str, Any]]) -> dict[str, Tensor]:
    """Return the tensors in the states of optimizers, with names for messages."""
    return {
        f"{name} of the optimizer for parameter {at}": value
        for state in states
        for at, moments in state["state"].items()
        for name, value in moments.items()
        if isinstance(value, Tensor)
    }


def previous_of(path: Path) -> Path:
    """Return where the checkpoint before the one at ``path`` is kept."""
    return path.with_suffix(f".previous{path.suffix}")


def load_last(path: Path, model: nn.Module, *, tidy: bool) -> Path | None:
    """Load the last intact checkpoint, or the one before it, into ``model``; return its path.

    ``None`` if there is none; a :class:`UserError` says that it cannot be read, or does not fit.
    With ``tidy``, for one process of a run, damaged files are set aside, unfinished ones removed.
    """
    if tidy:
        check_writable(path.parent)
        for unfinished in path.parent.glob(f".{path.name}.*"):
            unfinished.unlink()
    damaged = False
    for candidate in filter(Path.exists, (path, previous_of(path))):
        reason = damage(candidate)
        if reason is None:
            try:
                content = torch.load(candidate, map_location="cpu", weights_only=True)
                if lacking := [part for part in PARTS if part not in content]:
                    raise ValueError(f"\n\tno {lacking[0]}")
                model.load_state_dict(content["state_dict"])
            except Exception as error:
                # The first of the misfits, as load_state_dict lists them: on a line after a tab.
                why = str(error).partition("\n\t")[2].partition("\n")[0] or type(error).__name__
                raise UserError(
                    f"{candidate} is not a checkpoint of this model ({why}): delete it to start "
                    "from the beginning"
                ) from error
            moments = _moments(content["optimizer_states"])
            if names := nonfinite({**dict(model.named_parameters()), **moments}):
                raise UserError(
                    f"{candidate} has values that are not finite, in {names}: delete it to resume "
                    "from the checkpoint before it or, without one, to start from the beginning"
                )
            log.info("resuming from %s", candidate)
            return candidate
        damaged = True
        if tidy:
            aside = candidate.replace(candidate.with_name(f"{candidate.name}.damaged"))
            log.warning("%s is damaged (%s): kept as %s", candidate, reason, aside.name)
    if damaged and tidy:
        log.warning("no intact checkpoint in %s: the run starts from the beginning", path.parent)
    return None


def damage(path: Path) -> str | None:
    """Return how a checkpoint file is damaged, or ``None`` if it is as it was written.

    Compares the CRC-32 of every part, which ``torch.load`` ignores, reads what is around them, and
    counts the values: one that lacks some would resume with other results.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            part = archive.testzip()
        if part is not None:
            return f"the checksum of {part} is wrong"
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        written = content.pop(_SIZES, {}) if isinstance(content, dict) else {}
        for name, size in written.items():
            if _sizes(content).get(name) != size:
                return f"its {name} are not complete"
    except pickle.UnpicklingError:
        return None  # intact, but no checkpoint of ours: its reader reports that
    except MemoryError:
        raise
    except Exception as error:  # a changed byte can cause almost any of them
        # A wrong offset gives EINVAL; other errno values come from the disk, network or machine.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise UserError(
                f"{path} cannot be read at the moment ({error.strerror}). It is left unchanged; "
                "start the same command again when it can be read"
            ) from error
        return f"{type(error).__name__}: {str(error).partition('.')[0]}"
    return None
