"""Random numbers after a restart are those of an uninterrupted run."""

from __future__ import annotations

import io
import random

import numpy as np
import torch

from phantomgrad.survival import RandomState


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
