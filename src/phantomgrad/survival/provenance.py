"""Where a checkpoint comes from, written into it."""

from __future__ import annotations

from typing import Any

from lightning import Callback, LightningModule, Trainer

KEY = "provenance"


class Provenance(Callback):
    """Writes facts into every checkpoint, under ``provenance``.

    Args:
        facts: plain values: command, configuration, revision, versions.
    """

    def __init__(self, facts: dict[str, Any]) -> None:
        self.facts = facts

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Add the facts."""
        checkpoint[KEY] = self.facts
