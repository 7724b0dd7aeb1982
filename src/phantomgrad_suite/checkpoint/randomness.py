"""Random-number state in checkpoints, so that a resumed run is the uninterrupted one."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from lightning import Callback, LightningModule, Trainer

from phantomgrad_suite.checkpoint.processes import of_all_processes, of_this_process


class RandomState(Callback):
    """Saves the state of every generator with a checkpoint and restores it before training.

    In a distributed run the generators of the CPU are common to all processes, which so agree on
    the order of the data and on what is part of a step. Those of GPUs, from which masks and random
    vectors come, are each seeded for their own.
    """

    def __init__(self) -> None:
        self._restored: dict[str, Any] | None = None

    def state_dict(self) -> dict[str, Any]:
        """Return the states of torch (CPU and CUDA), numpy and Python, of every process."""
        return {"processes": of_all_processes(generator_states())}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the states until training starts."""
        # Checkpoints of earlier versions hold the states of one process.
        self._restored = of_this_process(state_dict.get("processes", [state_dict]))

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Have the GPUs of a distributed run draw different numbers."""
        if trainer.world_size > 1:
            # Of the device of this process, once it uses it.
            torch.cuda.manual_seed(torch.initial_seed() + trainer.global_rank)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restore the states of a checkpoint: nothing draws between here and the first batch."""
        if self._restored is None:
            return
        set_generators(self._restored)
        self._restored = None


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
    """Put the generators back to states of before."""
    torch.set_rng_state(states["torch"])
    if states["cuda"] and torch.cuda.is_available():
        for device, state in zip(range(torch.cuda.device_count()), states["cuda"], strict=False):
            torch.cuda.set_rng_state(state, device)  # a checkpoint may be of more devices
    np.random.set_state(states["numpy"])  # noqa: NPY002
    random.setstate(states["python"])
