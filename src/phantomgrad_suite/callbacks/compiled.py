"""Compiles f in runs that are long enough to earn the time this takes."""

import logging
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from phantomgrad.closure import LayerMap
from phantomgrad.deq import DEQ
from phantomgrad.models.mdeq import MDEQCell
from phantomgrad.models.transformer import TransformerCell
from phantomgrad.solvers import Map
from phantomgrad_suite.callbacks.capture import detached, layers_of, watch
from phantomgrad_suite.callbacks.cost import evaluation_seconds

_RECORDED = {MDEQCell}  # the cells that save time in recorded evaluations as well
_COMPILATION = 100  # CPU seconds that it takes
# Entries of a state from which on MDEQ is not compiled: on 16 x 16 pixels MDEQ-Tiny has 7,680.
_LARGE = 8_000

log = logging.getLogger(__name__)


class CompiledCells(Callback):
    """Compiles evaluations of f after the first training step, for batches of its size.

    The first step tells what an evaluation of f costs. Compiled evaluations differ from eager ones
    by rounding, so a resumed run goes on as it began, unless the setting has changed.

    Args:
        setting: ``runtime.compile``: ``auto`` compiles on the CPU if it saves at least twice the
            time that it takes, ``True`` in any case, a mode of ``torch.compile`` as well.
    """

    def __init__(self, setting: bool | str | None) -> None:
        self._setting = setting
        self.mode: str | None = None
        """With which the cells are compiled; ``None`` if they are not."""
        self._batches: list[int | None] = []  # that each layer is compiled for, once decided
        self._hooks: list[RemovableHandle] = []
        self._passes: list[tuple[DEQ, LayerMap, Tensor]] = []

    def state_dict(self) -> dict[str, Any]:
        return {"mode": self.mode, "batches": self._batches}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.mode, self._batches = state_dict["mode"], state_dict["batches"]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not self._batches:
            return
        before = self.mode
        self._compile(pl_module, before if self._setting == "auto" else _mode(self._setting))
        if self.mode != before and trainer.is_global_zero:
            log.warning(
                "f was %s until this run was interrupted and is %s now: the results differ by "
                "rounding from those of a run without interruption (runtime.compile)",
                *("compiled" if mode else "eager" for mode in (before, self.mode)),
            )

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if not self._batches:
            self._hooks = watch(pl_module, self._keep)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        while self._hooks:
            self._hooks.pop().remove()
        if not self._passes:  # decided, or a step of pretraining
            return
        batches = {layer: None if layer.coupled else len(z) for layer, _, z in self._passes}
        self._batches = [batches.get(layer) for layer in layers_of(pl_module)]
        mode = _mode(self._setting)
        if self._setting == "auto" and pl_module.device.type == "cpu":
            mode = "default" if self._is_long(trainer) else None
        mode = trainer.strategy.broadcast(mode)  # each process has measured its own time
        self._passes.clear()
        self._compile(pl_module, mode)

    def _is_long(self, trainer: Trainer) -> bool:
        """Return whether the rest of the run earns the compilation, and say so."""
        with trainer.precision_plugin.forward_context():
            saved = sum(_saved_seconds(*each) for each in self._passes)
        saved *= trainer.estimated_stepping_batches - trainer.global_step
        if saved <= 2 * _COMPILATION:
            return False
        if trainer.is_global_zero:
            log.info(
                "compiling f, which should save about %d s of CPU time and takes %d s, less if "
                "this machine has done it before; never: runtime.compile=false",
                saved,
                _COMPILATION,
            )
        return True

    def _keep(self, layer: DEQ, f: Map, z: Tensor, attached: Tensor) -> None:
        assert isinstance(f, LayerMap)
        self._passes.append((layer, detached(f), z))

    def _compile(self, module: LightningModule, mode: str | None) -> None:
        self.mode = None
        if mode is None:
            return
        try:  # a failure in the first evaluation would be reported in a hundred lines
            torch.compile(lambda x: x.sin() + x, mode=mode)(torch.ones(2, device=module.device))
        except Exception as error:
            reason = str(error).strip().splitlines()[0]
            log.warning("f is not compiled, since torch.compile does not work here: %s", reason)
            return
        for layer, batch in zip(layers_of(module), self._batches, strict=True):
            compile_layer(layer, mode, batch)
        self.mode = mode


def compile_layer(layer: DEQ, mode: str, batch: int | None = None) -> None:
    """Compile evaluations of f, recorded ones where that saves time, in a mode of torch.compile."""
    recorded = type(layer.cell) in _RECORDED
    layer.compile_solve(batch=batch, recorded=recorded, mode=mode, dynamic=False)


def _mode(setting: bool | str | None) -> str | None:
    """Return the mode that is asked for in any case."""
    if setting in (None, False, "auto"):
        return None
    return "default" if setting is True else str(setting)


def _saved_seconds(layer: DEQ, f: LayerMap, z: Tensor) -> float:
    """Return the CPU seconds of a step that compilation would save in the solves of a layer."""
    share, solution = _saved_share(layer, z), layer.last_solution
    if not share or solution is None:
        return 0.0
    return share * evaluation_seconds(f, z) * int(solution.evaluations.max())


def _saved_share(layer: DEQ, z: Tensor) -> float:
    """Return the share of an evaluation of f that is saved on one CPU core (benchmarks/floor.py).

    On large states of MDEQ it is too little. Other cells have not been measured, and IGNN's gets
    slower.
    """
    small = isinstance(layer.cell, MDEQCell) and z[0].numel() < _LARGE
    return 0.2 if small or isinstance(layer.cell, TransformerCell) else 0.0
