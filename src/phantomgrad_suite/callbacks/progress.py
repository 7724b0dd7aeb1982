"""One progress bar over the epochs of a run."""

from __future__ import annotations

from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_only
from tqdm import tqdm


class EpochProgress(Callback):
    """Shows epochs done, time left, and the latest loss and test metric.

    Args:
        title: what is running, for example ``table4/cox2_implicit seed42-fold3``.
        shown: metrics shown beside the bar, those of them that there are.
    """

    def __init__(
        self,
        title: str = "",
        shown: tuple[str, ...] = ("train/loss", "test/accuracy", "test/perplexity"),
    ) -> None:
        self._title, self._shown = title, tuple(shown)
        self._bar: tqdm[None] | None = None

    @rank_zero_only
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Open the bar, at the epoch a resumed run goes on from."""
        self._bar = tqdm(
            total=trainer.max_epochs,
            initial=trainer.current_epoch,
            desc=self._title,
            unit="epoch",
            dynamic_ncols=True,
            mininterval=0.5,
        )

    @rank_zero_only
    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Move on by one epoch."""
        if self._bar is None:
            return
        metrics = trainer.callback_metrics
        shown = {n: f"{float(metrics[n]):.4f}" for n in self._shown if n in metrics}
        self._bar.set_postfix(shown, refresh=False)
        self._bar.update()

    @rank_zero_only
    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Close the bar."""
        if self._bar is not None:
            self._bar.close()

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Close the bar, so that the message stands on its own line."""
        if self._bar is not None:
            self._bar.close()
