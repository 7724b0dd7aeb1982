"""What checkpoints hold in addition to Lightning's own: random state, place in the data, origin."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from lightning import Callback, LightningModule, Trainer

from phantomgrad_suite.checkpoint.processes import of_all_processes, of_this_process

PROVENANCE, GENERATORS, LOADER = "provenance", "generators", "loader"


class RunState(Callback):
    """Saves what a resumed run needs to equal the uninterrupted one, and where the run comes from.

    Of every process the state of its random-number generators: those of the CPU are equal in all
    processes, which therefore agree on the order of the data; those of the GPUs, which draw masks
    and random vectors, are seeded differently in each process.

    The position of the training loader: Lightning restores none if the number of steps was
    computed before (for a schedule by step), and resets the loader at the end of an epoch.

    Args:
        facts: command, configuration, revision, versions, start time.

    Attributes:
        attempts: start, revision and hardware of each attempt up to the present one, since a run
            may be resumed by another revision or on another machine.
    """

    def __init__(self, facts: dict[str, Any]) -> None:
        self._facts = facts
        self._restored: dict[str, Any] = {}
        kept = ("git", "processor", "threads", "accelerator")
        environment = {name: facts["environment"][name] for name in kept}
        self.attempts = [{"started": facts["started"], **environment}]

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Seed the GPUs of a distributed run differently."""
        if trainer.world_size > 1:
            torch.cuda.manual_seed(torch.initial_seed() + trainer.global_rank)

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Add provenance, generators and, for a loader that has one, its position."""
        checkpoint[PROVENANCE] = {**self._facts, "attempts": self.attempts}
        checkpoint[GENERATORS] = of_all_processes(generator_states())
        loader: Any = trainer.train_dataloader
        if is_resumable(loader):
            is_over = bool(trainer.is_last_batch)
            checkpoint[LOADER] = {"state": loader.state_dict(), "epoch_is_over": is_over}

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Keep the state until training starts."""
        self._restored = checkpoint
        self.attempts = [*checkpoint[PROVENANCE]["attempts"], *self.attempts]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restore the state: nothing is drawn between this hook and the first batch."""
        restored, self._restored = self._restored, {}
        if GENERATORS in restored:
            set_generators(of_this_process(restored[GENERATORS]))
        loader: Any = trainer.train_dataloader
        if LOADER in restored and is_resumable(loader):
            saved = restored[LOADER]
            if not saved["epoch_is_over"]:
                loader.load_state_dict(saved["state"])


def is_resumable(loader: Any) -> bool:
    """Return whether a loader can save and restore its position."""
    return hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")


def generator_states() -> dict[str, Any]:
    """Return the states of the generators of torch (CPU and CUDA), numpy and Python."""
    numpy_state = np.random.get_state(legacy=True)  # noqa: NPY002
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": (numpy_state[0], numpy_state[1].tolist(), *numpy_state[2:]),  # type: ignore[index]
        "python": random.getstate(),
    }


def set_generators(states: dict[str, Any]) -> None:
    """Restore the states that :func:`generator_states` returned, perhaps on fewer devices."""
    torch.set_rng_state(states["torch"])
    if states["cuda"] and torch.cuda.is_available():
        for device, state in zip(range(torch.cuda.device_count()), states["cuda"], strict=False):
            torch.cuda.set_rng_state(state, device)
    np.random.set_state(states["numpy"])  # noqa: NPY002
    random.setstate(states["python"])
