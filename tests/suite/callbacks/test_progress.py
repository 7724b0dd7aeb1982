"""The progress bar: epochs, title, metrics, and its end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from phantomgrad_suite.callbacks import EpochProgress

TITLE = "table4/cox2_implicit seed42-fold3"


def shown(
    capsys: pytest.CaptureFixture[str], done: int = 0, metrics: Any = None, failure: bool = False
) -> str:
    """Return the bar of a run of five epochs after its end or failure."""
    trainer: Any = SimpleNamespace(
        max_epochs=5, current_epoch=done, callback_metrics=metrics or {}, is_global_zero=True
    )
    bar = EpochProgress(title=TITLE)
    bar.on_train_start(trainer, None)  # type: ignore[arg-type]
    for _ in range(done, 4 if failure else 5):
        bar.on_train_epoch_end(trainer, None)  # type: ignore[arg-type]
    (bar.on_exception if failure else bar.on_train_end)()
    return capsys.readouterr().err


def test_bar_counts_epochs_and_shows_the_metrics(capsys: pytest.CaptureFixture[str]) -> None:
    metrics = {"train/loss": torch.tensor(0.12345), "test/accuracy": torch.tensor(0.9)}
    last = shown(capsys, metrics=metrics).split("\r")[-1]
    for part in (TITLE, "5/5", "train/loss=0.1235", "test/accuracy=0.9000"):
        assert part in last
    assert "test/perplexity" not in last
    assert last.endswith("\n")


def test_bar_of_a_resumed_run_starts_at_its_epoch(capsys: pytest.CaptureFixture[str]) -> None:
    assert "3/5" in shown(capsys, done=3).split("\r")[1]


def test_error_message_gets_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, failure=True).endswith("\n")


def test_failure_before_the_start_and_other_processes_show_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bar = EpochProgress()
    bar.on_exception()
    trainer: Any = SimpleNamespace(
        max_epochs=5, current_epoch=0, callback_metrics={}, is_global_zero=False
    )
    bar.on_train_start(trainer, None)  # type: ignore[arg-type]
    bar.on_train_epoch_end(trainer, None)  # type: ignore[arg-type]
    bar.on_train_end()
    assert capsys.readouterr().err == ""
