"""A batch, and a model of two layers."""

from __future__ import annotations

import pytest
import torch
from callbacks.steps import Stack
from problems import TanhCell
from torch import Tensor


@pytest.fixture
def x() -> Tensor:
    return torch.randn(3, 4)


@pytest.fixture
def stack() -> Stack:
    return Stack(TanhCell(seed=3), TanhCell(norm=0.6, seed=5))
