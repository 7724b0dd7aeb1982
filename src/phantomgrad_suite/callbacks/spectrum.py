"""The spectral radius of the equilibrium layers along a training run."""

from __future__ import annotations

from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer

from phantomgrad.checks import check_at_least
from phantomgrad.deq import DEQ
from phantomgrad.jacobian import spectral_radius
from phantomgrad_suite.callbacks.capture import Listener
from phantomgrad_suite.checkpoint.processes import of_all_processes, of_this_process


class SpectralRadius(Callback):
    """Logs the largest spectral radius of ``df/dz`` at the equilibria of a training batch.

    Args:
        every_n_epochs: how often; 0 turns it off.
        iterations: of the power method, each a vector-Jacobian product.
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
        """Listen to the equilibrium layers during the first batch of every n-th epoch."""
        if self._every and batch_idx == 0 and trainer.current_epoch % self._every == 0:
            self._radii.clear()
            self._listener.start(pl_module)

    def on_before_backward(
        self, trainer: Trainer, pl_module: LightningModule, loss: torch.Tensor
    ) -> None:
        """Stop listening."""
        self._listener.stop()

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Log what was measured, at the last batch: until then a checkpoint keeps it."""
        if trainer.is_last_batch and self._radii:
            radii = torch.cat([radii.to(pl_module.device) for radii in self._radii])
            pl_module.log(
                "spectral_radius",
                radii.max(),
                on_step=False,
                on_epoch=True,
                batch_size=1,
                reduce_fx="max",
                sync_dist=True,
            )
            self._radii.clear()

    def state_dict(self) -> dict[str, Any]:
        """Return what each process has measured in this epoch."""
        return {"radii": of_all_processes([radii.cpu() for radii in self._radii])}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what was measured before."""
        self._radii = of_this_process(state_dict["radii"])

    def _measure(self, layer: DEQ, inputs: tuple[Any, ...], output: Any) -> None:
        f, z, _ = layer.close_over(inputs, output[0])
        # A generator of its own: looking at a run must not change it.
        generator = torch.Generator(device=z.device).manual_seed(0)
        self._radii.append(spectral_radius(f, z, iterations=self._iterations, generator=generator))
