"""A short search on the chains, and what it has left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig

import phantomgrad_suite.train
from phantomgrad_suite.runs.records import Record, read_record
from phantomgrad_suite.tuning.command import JOURNAL

ROW = "chains/upg_k5_d0.5"
SHORT = ("tune=lambda", f"experiment={ROW}", "trainer.max_epochs=2", "tune.startup=3")


def trials(folder: Path, row: str = ROW) -> list[tuple[int, dict[str, Any], float]]:
    """Place, settings and value of each finished trial, as Optuna's file has them."""
    from optuna import get_all_study_names, load_study
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    storage = JournalStorage(JournalFileBackend(str(folder / "runs" / "tune" / row / JOURNAL)))
    (name,) = get_all_study_names(storage)
    found = load_study(study_name=name, storage=storage).trials
    return [(t.user_attrs["position"], t.params, t.values[0]) for t in found]


def records(folder: Path) -> list[Record]:
    return [read_record(path) for path in sorted((folder / "runs" / "tune").rglob("record.json"))]


def count_runs(monkeypatch: pytest.MonkeyPatch, fails: dict[int, BaseException]) -> list[str]:
    """Note the λ of each run that is begun; those in ``fails``, by their number, raise."""
    begun: list[str] = []
    do = phantomgrad_suite.train.run

    def run(config: DictConfig, row: str | None, overrides: list[str]) -> None:
        begun.append(f"{config.gradient.damping}-{config.seed}")
        if len(begun) - 1 in fails:
            raise fails[len(begun) - 1]
        do(config, row, overrides)

    monkeypatch.setattr("phantomgrad_suite.train.run", run)
    return begun
