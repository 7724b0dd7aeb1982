"""A progress bar over the epochs of a run."""

from typing import Any

from lightning import Callback, LightningModule, Trainer
from tqdm import tqdm


class EpochProgress(Callback):
    """Shows the epochs done, the time left and those of the metrics ``shown`` that are logged."""

    def __init__(
        self,
        title: str = "",
        shown: tuple[str, ...] = ("train/loss", "test/accuracy", "test/perplexity"),
    ) -> None:
        self._title, self._shown = title, tuple(shown)
        self._bar: Any = tqdm(disable=True)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._bar = tqdm(
            total=trainer.max_epochs,
            initial=trainer.current_epoch,
            desc=self._title,
            unit="epoch",
            dynamic_ncols=True,
            mininterval=0.5,
            disable=not trainer.is_global_zero,
        )

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        metrics = trainer.callback_metrics
        shown = {n: f"{float(metrics[n]):.4f}" for n in self._shown if n in metrics}
        self._bar.set_postfix(shown, refresh=False)
        self._bar.update()

    def on_train_end(self, *_: Any) -> None:
        self._bar.close()

    on_exception = on_train_end  # type: ignore[assignment]  # a line of its own for the message
