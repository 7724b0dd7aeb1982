"""A small DEQ-Transformer, words for it, and a memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from phantomgrad import (
    BackpropThroughSolver,
    Broyden,
    GradientEstimator,
    ImplicitGradient,
    NeumannPhantomGradient,
    Solver,
    UnrolledPhantomGradient,
)
from phantomgrad.models import Memory, TransformerLM

TIGHT = Broyden(max_evaluations=200, tol=1e-14)
IMPLICIT = ImplicitGradient(solver=TIGHT)
PHANTOM = UnrolledPhantomGradient(3, 0.5)
VOCABULARY = 30
ESTIMATORS = [IMPLICIT, PHANTOM, NeumannPhantomGradient(3, 0.5), BackpropThroughSolver()]
PRE_NORM = pytest.mark.parametrize("pre_norm", [False, True], ids=["PostLN", "PreLN"])


def small(gradient: GradientEstimator = PHANTOM, solver: Solver = TIGHT, **s: Any) -> TransformerLM:
    """Three clusters; injections of the size of the state."""
    sizes = {
        "width": 8,
        "heads": 2,
        "inner": 12,
        "cutoffs": (6, 15),
        "shrinkage": 2,
        "memory_length": 4,
        "dropout": 0.0,
        "embedding_std": 0.5,
        **s,
    }
    return TransformerLM(VOCABULARY, solver, gradient, **sizes)


def words(batch: int = 3, length: int = 5) -> tuple[Tensor, Tensor]:
    """Tokens and targets, of all clusters."""
    both = torch.randint(VOCABULARY, (2, batch, length))
    both[:, 0, 0] = torch.tensor([2, 29])
    both[:, 1, 1] = torch.tensor([10, 7])
    both[:, 2, 2] = torch.tensor([20, 0])
    return both[0], both[1]


def some_memory(batch: int = 3, length: int = 4, width: int = 8) -> Memory:
    return Memory(torch.randn(batch, length, width), torch.randn(batch, length, 3 * width))
