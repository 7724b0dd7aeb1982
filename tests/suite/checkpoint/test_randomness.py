"""Random numbers after a restart are those of an uninterrupted run."""

from __future__ import annotations

import io
import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from phantomgrad_suite.checkpoint import RandomState


def draw() -> tuple[float, float, float]:
    return float(torch.rand(())), float(np.random.rand()), random.random()  # noqa: NPY002


def test_every_generator_goes_on_where_it_was() -> None:
    draw()
    buffer = io.BytesIO()
    torch.save(RandomState().state_dict(), buffer)
    expected = draw()
    buffer.seek(0)
    callback = RandomState()
    # Checkpoints are read without unpickling arbitrary objects.
    callback.load_state_dict(torch.load(buffer, weights_only=True))
    draw()
    callback.on_train_start(None, None)  # type: ignore[arg-type]
    assert draw() == expected


def test_gpus_of_a_distributed_run_draw_different_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Masks, that is; what the CPU draws is common."""
    seeds: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed", seeds.append)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    for processes, rank in ((1, 0), (2, 0), (2, 1)):
        place = SimpleNamespace(world_size=processes, global_rank=rank)
        RandomState().on_fit_start(place, None)  # type: ignore[arg-type]
    assert seeds == [5, 6]
    assert torch.equal(torch.get_rng_state(), before)


def test_state_is_restored_once() -> None:
    callback = RandomState()
    callback.load_state_dict(callback.state_dict())
    callback.on_train_start(None, None)  # type: ignore[arg-type]
    first = draw()
    callback.on_train_start(None, None)  # type: ignore[arg-type]
    assert draw() != first


def test_fresh_run_is_left_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(())
    torch.manual_seed(5)
    RandomState().on_train_start(None, None)  # type: ignore[arg-type]
    assert torch.equal(torch.rand(()), expected)
