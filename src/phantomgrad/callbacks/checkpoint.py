"""Checkpoints that are whole: an interrupted write leaves the one before."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO


class WholeCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint beside its place, and moves it there in one step.

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
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
