"""What the DEQ-Transformer refuses: sizes, tokens, targets, memories."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from transformer_small import small, some_memory

from phantomgrad.models import Memory


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"width": 9, "heads": 3}, "width must be even, .* got 9"),
        ({"heads": 3}, "width must be a multiple of heads = 3, got 8"),
        ({"heads": 0}, "heads must be at least 1, got 0"),
        ({"inner": 0}, "inner must be at least 1, got 0"),
        ({"width": 0}, "width must be at least 2, got 0"),
        ({"cutoffs": (6, 6)}, r"cutoffs must increase strictly .* vocabulary = 30, got \[6, 6\]"),
        ({"cutoffs": (0, 6)}, r"cutoffs must increase strictly .* got \[0, 6\]"),
        ({"cutoffs": (6, 30)}, r"cutoffs must increase strictly .* got \[6, 30\]"),
        ({"cutoffs": (1, 2, 3, 4)}, "shrinkage must leave the last table a width, .* got 2"),
        ({"shrinkage": 0}, "shrinkage must be at least 1, got 0"),
        ({"memory_length": -1}, "memory_length must be at least 0, got -1"),
        ({"window": 0}, "window must be at least 1, got 0"),
        ({"raw_residual": True}, "raw_residual must be False without pre_norm, got True"),
        ({"dropout": 1.0}, r"dropout must lie in \[0, 1\), got 1.0"),
        ({"attention_dropout": -0.1}, r"attention_dropout must lie in \[0, 1\), got -0.1"),
        ({"output_dropout": "rows"}, "output_dropout must be 'tokens' or 'features', got 'rows'"),
        ({"cutoffs": 6}, "cutoffs must be a list, got 6"),
        ({"cutoffs": (6.5, 20)}, r"cutoffs must hold integers, got \[6.5, 20\]"),
        ({"cutoffs": ("a", "b")}, r"cutoffs must hold integers, got \['a', 'b'\]"),
        ({"embedding_std": -1.0}, "embedding_std must be finite and not negative, got -1.0"),
        ({"embedding_std": math.nan}, "embedding_std must be finite and not negative, got nan"),
        ({"embedding_std": math.inf}, "embedding_std must be finite and not negative, got inf"),
    ],
)
def test_bad_arguments_are_refused(bad: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small(**bad)


def integers(*shape: int, fill: int = 1) -> Tensor:
    return torch.full(shape, fill)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"tokens": integers(5)}, r"tokens must be integers \(B, L\), got torch.int64 .* \(5,\)"),
        ({"tokens": integers(3, 0)}, r"tokens must be integers \(B, L\), .* \(3, 0\)"),
        ({"tokens": torch.zeros(3, 5)}, "tokens must be integers .* got torch.float"),
        ({"tokens": torch.ones(3, 5).bool()}, "tokens must be integers .* got torch.bool"),
        ({"tokens": integers(3, 5, fill=30)}, r"tokens must lie in \[0, 30\), got 30 to 30"),
        ({"targets": integers(3, 5, fill=-1)}, r"targets must lie in \[0, 30\), got -1 to -1"),
        ({"targets": integers(3, 4)}, r"targets must be \(3, 5\) like tokens, got \(3, 4\)"),
        ({"targets": torch.zeros(3, 5)}, "targets must be integers .* got torch.float"),
        ({"memory": some_memory(2)}, r"memory must hold states \(3, M, 8\) .* got \(2, 4, 8\)"),
        ({"memory": some_memory(width=6)}, r"memory must hold states \(3, M, 8\) .* \(3, 4, 6\)"),
        (
            {"memory": Memory(torch.zeros(3, 4, 8), torch.zeros(3, 3, 24))},
            r"injections \(3, M, 24\), got \(3, 4, 8\) and \(3, 3, 24\)",
        ),
        ({"memory": Memory(torch.zeros(3), torch.zeros(3))}, r"memory must hold .* got \(3,\)"),
        ({"unrolled": -1}, "unrolled must be at least 0, got -1"),
        ({"memory_length": -1}, "memory_length must be at least 0, got -1"),
    ],
)
def test_bad_segments_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small()(**{"tokens": integers(3, 5), "targets": integers(3, 5), **changed})
