"""Random numbers after a restart equal those of an uninterrupted run."""

from __future__ import annotations

import io
import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from phantomgrad_suite.checkpoint.state import RunState

HARDWARE = dict.fromkeys(("git", "processor", "threads", "accelerator"))
FACTS = {"environment": HARDWARE, "started": "now", "config_hash": "c0ffee"}
TRAINER: Any = SimpleNamespace(train_dataloader=[])
TASK: Any = None


def draw() -> tuple[float, float, float]:
    return float(torch.rand(())), float(np.random.rand()), random.random()  # noqa: NPY002


def saved() -> dict[str, Any]:
    """A checkpoint, read back without unpickling arbitrary objects."""
    content: dict[str, Any] = {}
    before = RunState({**FACTS, "started": "before"})
    before.on_save_checkpoint(TRAINER, TASK, content)
    buffer = io.BytesIO()
    torch.save(content, buffer)
    buffer.seek(0)
    loaded: dict[str, Any] = torch.load(buffer, weights_only=True)
    return loaded


def test_every_generator_is_restored_once() -> None:
    draw()
    content = saved()
    expected = draw()
    state = RunState(FACTS)
    state.on_load_checkpoint(TRAINER, TASK, content)
    assert draw() != expected
    state.on_train_start(TRAINER, TASK)
    assert draw() == expected
    state.on_train_start(TRAINER, TASK)
    assert draw() != expected
    assert [attempt["started"] for attempt in state.attempts] == ["before", "now"]


def test_gpus_of_a_distributed_run_draw_different_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the CPU draws is common to all processes."""
    seeds: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed", seeds.append)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    for processes, rank in ((1, 0), (2, 0), (2, 1)):
        trainer: Any = SimpleNamespace(world_size=processes, global_rank=rank)
        RunState(FACTS).on_fit_start(trainer, TASK)
    assert seeds == [5, 6]
    assert torch.equal(torch.get_rng_state(), before)
