"""The spectral radius of the equilibrium layers along a training run."""

from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer

from phantomgrad.checks import check_at_least
from phantomgrad.deq import DEQ
from phantomgrad_suite.callbacks.capture import Listener, radii


class SpectralRadius(Callback):
    """Logs the largest spectral radius of ``df/dz`` at the equilibria of an epoch's first batch.

    Args:
        every_n_epochs: interval of the measurements; 0 for none.
        iterations: vector-Jacobian products of a power iteration.
    """

    def __init__(self, every_n_epochs: int = 20, iterations: int = 20) -> None:
        check_at_least("every_n_epochs", every_n_epochs, 0)
        check_at_least("iterations", iterations, 1)
        self._every, self._iterations = every_n_epochs, iterations
        self._listener = Listener(self._measure)
        self._radii: list[torch.Tensor] = []

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if self._every and batch_idx == 0 and trainer.current_epoch % self._every == 0:
            self._listener.start(pl_module)

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        self._listener.stop()
        if self._radii:
            largest = torch.cat(self._radii).max()
            options: dict[str, Any] = {"on_step": False, "on_epoch": True, "batch_size": 1}
            pl_module.log("spectral_radius", largest, reduce_fx="max", sync_dist=True, **options)
            self._radii.clear()

    def _measure(self, layer: DEQ, inputs: tuple[Any, ...], output: Any) -> None:
        f, z, _ = layer.close_over(inputs, output[0])
        self._radii.append(radii(f, z, self._iterations))
