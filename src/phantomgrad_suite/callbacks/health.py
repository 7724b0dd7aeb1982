"""Warnings of layers whose solves keep failing."""

from functools import partial
from typing import Any

from lightning import Callback, LightningModule, Trainer
from phantomgrad.health import SolverHealth

from phantomgrad.deq import DEQ


class SolverMonitor(Callback):
    """Warns when the solves of an equilibrium layer fail ``patience`` training steps in a row.

    For any Trainer and model: each :class:`phantomgrad.DEQ` is watched by a
    :class:`phantomgrad.SolverHealth`, which defines a failed solve; layers without a tolerance
    (``tol=0``, ``Steps``) are not watched. With several processes, only the first one watches.
    """

    def __init__(self, patience: int = 100, residual: float = 0.9) -> None:
        self._watch = partial(SolverHealth, patience=patience, residual=residual)
        self._watch()  # checks the settings
        self._watched: list[tuple[DEQ, SolverHealth]] = []

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._watched = [
            (layer, self._watch(name=f"the solver of {name}"))
            for name, layer in pl_module.named_modules()
            if isinstance(layer, DEQ) and trainer.is_global_zero
        ]

    def on_train_batch_end(self, *_: Any) -> None:
        for layer, watch in self._watched:
            if layer.last_solution is not None:
                watch(layer.last_solution)
