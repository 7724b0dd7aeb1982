"""The progress bar: epochs, title, metrics, and its end."""

from types import SimpleNamespace

import pytest
import torch

from phantomgrad_suite.callbacks import EpochProgress

METRICS = {"train/loss": torch.tensor(0.12345), "test/accuracy": torch.tensor(0.9)}


@pytest.mark.parametrize("end", ["on_train_end", "on_exception"])
def test_bar_counts_epochs_and_shows_the_metrics(capsys, end):
    """The run is resumed in the third epoch; a message gets a line of its own."""
    bar = EpochProgress(title="table4/cox2_implicit seed42-fold3")
    trainer = SimpleNamespace(
        max_epochs=5, current_epoch=3, callback_metrics=METRICS, is_global_zero=True
    )
    task = None
    bar.on_train_start(trainer, task)
    for _ in range(2):
        bar.on_train_epoch_end(trainer, task)
    getattr(bar, end)(trainer, task)
    first, *_, last = capsys.readouterr().err.split("\r")[1:]
    assert "3/5" in first
    for part in ("cox2_implicit seed42-fold3", "5/5", "train/loss=0.1235", "test/accuracy=0.9000"):
        assert part in last
    assert "test/perplexity" not in last
    assert last.endswith("\n")
