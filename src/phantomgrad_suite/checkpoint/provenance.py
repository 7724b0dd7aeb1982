"""Where a checkpoint comes from, written into it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning import Callback, LightningModule, Trainer

KEY = "provenance"
_OF_AN_ATTEMPT = ("git", "processor", "threads", "accelerator")


class Provenance(Callback):
    """Writes facts into every checkpoint, under ``provenance``, and keeps those of its attempts.

    A run may be made in pieces: from several revisions, on several machines.

    Args:
        facts: plain values: command, configuration, revision, versions, the start.
    """

    def __init__(self, facts: dict[str, Any]) -> None:
        self.facts = facts
        self.attempts = [_attempt(facts)]
        """Start, revision and hardware of every piece that led here, the present one last."""

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Add the facts."""
        checkpoint[KEY] = {**self.facts, "attempts": self.attempts}

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Go on from the attempts of a checkpoint, where it has some."""
        self.attempts = [*checkpoint.get(KEY, {}).get("attempts", []), _attempt(self.facts)]


def _attempt(facts: Mapping[str, Any]) -> dict[str, Any]:
    environment = facts["environment"]
    return {"started": facts["started"], **{name: environment[name] for name in _OF_AN_ATTEMPT}}
