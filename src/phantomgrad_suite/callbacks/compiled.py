"""Compiles f in training runs, where ``runtime.compile`` asks for it."""

import logging
from contextlib import ExitStack
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor

from phantomgrad.deq import DEQ
from phantomgrad.models.mdeq import MDEQCell
from phantomgrad.solvers import Map
from phantomgrad_suite.callbacks.capture import layers_of, watch
from phantomgrad_suite.runs.errors import SettingError

_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
_RECORDED = {MDEQCell}  # the cells that save time in recorded evaluations as well

log = logging.getLogger(__name__)


class CompiledCells(Callback):
    """Compiles evaluations of f after the first training step, for batches of its size.

    Compiled evaluations differ from eager ones by rounding. So a run that is resumed is compiled
    from its first step on, as it would be without interruption; another setting is a warning.

    Args:
        setting: ``runtime.compile``: ``True``, or a mode of ``torch.compile``; else nothing is
            compiled.
    """

    def __init__(self, setting: bool | str | None) -> None:
        self._wanted = "default" if setting is True else setting or None
        if self._wanted not in (None, *_MODES):
            raise SettingError(
                f"runtime.compile must be true, false or one of {', '.join(_MODES)}, got {setting}"
            )
        self.mode: str | None = None
        """With which the cells are compiled; ``None`` if they are not."""
        self._batches: list[int | None] = []  # that each layer is compiled for, once known
        self._watched = ExitStack()
        self._seen: dict[DEQ, int | None] = {}

    def state_dict(self) -> dict[str, Any]:
        return {"mode": self._wanted, "batches": self._batches}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._batches = state_dict["batches"]
        if self._batches and state_dict["mode"] != self._wanted:
            log.warning(
                "runtime.compile was %s until this run was interrupted, and is %s now: the results "
                "differ by rounding from those of a run without interruption",
                *(mode or "false" for mode in (state_dict["mode"], self._wanted)),
            )

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._batches:
            self._compile(pl_module)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if not self._batches:
            self._watched = watch(pl_module, self._keep)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        self._watched.close()
        if self._seen:  # not in a step of pretraining
            self._batches = [self._seen.get(layer) for layer in layers_of(pl_module)]
            self._seen.clear()
            self._compile(pl_module)

    def _keep(self, layer: DEQ, f: Map, z: Tensor, attached: Tensor) -> None:
        self._seen[layer] = None if layer.coupled else len(z)

    def _compile(self, module: LightningModule) -> None:
        if self._wanted is None:
            return
        try:  # a failure in the first evaluation would be reported in a hundred lines
            torch.compile(torch.sin, mode=self._wanted)(torch.ones(2, device=module.device))
        except Exception as error:
            reason = str(error).strip().splitlines()[0]
            log.warning("f is not compiled, since torch.compile does not work here: %s", reason)
            return
        for layer, batch in zip(layers_of(module), self._batches, strict=True):
            compile_layer(layer, self._wanted, batch)
        self.mode = self._wanted


def compile_layer(layer: DEQ, mode: str, batch: int | None = None) -> None:
    """Compile evaluations of f, recorded ones where that saves time, in a mode of torch.compile."""
    recorded = type(layer.cell) in _RECORDED
    layer.compile_solve(batch=batch, recorded=recorded, mode=mode, dynamic=False)
