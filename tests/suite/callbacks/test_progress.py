"""The progress bar: epochs, title, metrics, and a clean end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from phantomgrad_suite.callbacks import EpochProgress


@pytest.fixture
def trainer() -> Any:
    metrics = {"train/loss": torch.tensor(0.12345), "test/accuracy": torch.tensor(0.9)}
    return SimpleNamespace(max_epochs=5, current_epoch=0, callback_metrics=metrics)


def test_bar_counts_epochs_and_shows_the_metrics(
    trainer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    bar = EpochProgress(title="table4/cox2_implicit seed42-fold3")
    bar.on_train_start(trainer, None)  # type: ignore[arg-type]
    for _ in range(5):
        bar.on_train_epoch_end(trainer, None)  # type: ignore[arg-type]
    bar.on_train_end(trainer, None)  # type: ignore[arg-type]
    last = capsys.readouterr().err.split("\r")[-1]
    for part in ("seed42-fold3", "5/5", "train/loss=0.1235", "test/accuracy=0.9000"):
        assert part in last
    assert last.endswith("\n")


def test_resumed_bar_starts_where_the_run_was(
    trainer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer.current_epoch = 3
    bar = EpochProgress()
    bar.on_train_start(trainer, None)  # type: ignore[arg-type]
    assert "3/5" in capsys.readouterr().err
    bar.on_train_end(trainer, None)  # type: ignore[arg-type]


def test_metrics_that_are_not_there_are_not_shown(
    trainer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer.callback_metrics = {}
    bar = EpochProgress(shown=("train/loss",))
    bar.on_train_start(trainer, None)  # type: ignore[arg-type]
    bar.on_train_epoch_end(trainer, None)  # type: ignore[arg-type]
    bar.on_train_end(trainer, None)  # type: ignore[arg-type]
    assert "train/loss" not in capsys.readouterr().err


def test_failure_leaves_the_message_a_line_of_its_own(
    trainer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    bar = EpochProgress()
    bar.on_train_start(trainer, None)  # type: ignore[arg-type]
    bar.on_exception(trainer, None, ValueError())  # type: ignore[arg-type]
    assert capsys.readouterr().err.endswith("\n")


def test_failure_before_the_start_is_no_second_failure(trainer: Any) -> None:
    bar = EpochProgress()
    bar.on_exception(trainer, None, ValueError())  # type: ignore[arg-type]
    bar.on_train_epoch_end(trainer, None)  # type: ignore[arg-type]
    bar.on_train_end(trainer, None)  # type: ignore[arg-type]
