"""What checkpoints hold in addition to Lightning's own: random state, place in the data, origin."""

import logging
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning import Callback, LightningModule, Trainer

from phantomgrad_suite.checkpoint.distributed import of_all_processes, of_this_process
from phantomgrad_suite.runs.errors import UserError

PROVENANCE, GENERATORS, LOADER = "provenance", "generators", "loader"
_HARDWARE = ("processor", "threads", "accelerator")
_ORIGIN = ("row", "instance", "config_hash", "data")

log = logging.getLogger(__name__)


class RunState(Callback):
    """Saves what a resumed run needs to equal the uninterrupted one, and where the run comes from.

    The generators of the CPU are equal in all processes, which therefore agree on the order of the
    data; those of the GPUs, which draw masks and random vectors, are seeded differently.

    The position of the training loader: Lightning restores none if the number of steps was
    computed before (for a schedule by step), and resets the loader at the end of an epoch.

    ``facts`` say what made the checkpoint; they are complete when training starts.
    """

    def __init__(self, facts: dict[str, Any]) -> None:
        self._facts = facts
        self._restored: dict[str, Any] = {}
        self._earlier: list[dict[str, Any]] = []

    @property
    def attempts(self) -> list[dict[str, Any]]:
        """Start, revision and hardware of each attempt, as they may differ; this one is last."""
        kept, found = ("git", *_HARDWARE), self._facts["environment"]
        environment = {name: found[name] for name in kept if name in found}
        return [*self._earlier, {"started": self._facts["started"], **environment}]

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.world_size > 1:
            torch.cuda.manual_seed(torch.initial_seed() + trainer.global_rank)

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        checkpoint[PROVENANCE] = {**self._facts, "attempts": self.attempts}
        numpy_state: Any = np.random.get_state()  # noqa: NPY002
        generators = {
            "torch": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
            "numpy": (numpy_state[0], numpy_state[1].tolist(), *numpy_state[2:]),
            "python": random.getstate(),
        }
        checkpoint[GENERATORS] = of_all_processes(generators)
        loader: Any = trainer.train_dataloader
        if is_resumable(loader):
            is_over = bool(trainer.is_last_batch)
            checkpoint[LOADER] = {"state": loader.state_dict(), "epoch_is_over": is_over}

    def resume(self, path: Path) -> None:
        """Keep the state in a checkpoint until training starts; refuse that of another run."""
        checkpoint = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        made_by = checkpoint.get(PROVENANCE, {})
        for key in _ORIGIN:
            if made_by.get(key) != self._facts.get(key):
                own, other = (str(facts.get(key)) for facts in (self._facts, made_by))
                raise UserError(
                    f"{path} is a checkpoint of another run (its {key} is {other}, not {own}): "
                    "move it away, or choose another runtime.paths.runs"
                )
        self._restored = {key: checkpoint[key] for key in (GENERATORS, LOADER) if key in checkpoint}
        self._earlier = made_by["attempts"]
        before, now = self._earlier[-1], self._facts["environment"]
        changed = [f"{k} {before[k]}, now {now[k]}" for k in _HARDWARE if before[k] != now[k]]
        if changed:
            log.warning(
                "resumed on other hardware (%s): the results may differ by rounding from those of "
                "a run without interruption",
                "; ".join(changed),
            )

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restore the state: nothing is drawn between this hook and the first batch."""
        restored, self._restored = self._restored, {}
        if GENERATORS in restored:
            generators = of_this_process(restored[GENERATORS])
            torch.set_rng_state(generators["torch"])
            np.random.set_state(generators["numpy"])  # noqa: NPY002
            random.setstate(generators["python"])
            for device in range(min(torch.cuda.device_count(), len(generators["cuda"]))):
                torch.cuda.set_rng_state(generators["cuda"][device], device)
        loader: Any = trainer.train_dataloader
        if restored and not is_resumable(loader):
            log.warning(
                "the loader of the training data has no state_dict: the resumed run may take the "
                "data in another order than an uninterrupted one (docs/extending.md)"
            )
        saved = restored.get(LOADER, {"epoch_is_over": True})
        if not saved["epoch_is_over"] and is_resumable(loader):
            loader.load_state_dict(saved["state"])


def is_resumable(loader: Any) -> bool:
    """Return whether a loader can save and restore its position."""
    return hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")
