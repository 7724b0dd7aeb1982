"""Argument checks of the language model; each names the argument, the rule and the value."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from phantomgrad.checks import check_at_least, check_integers, check_rate

_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def check_widths(width: int, heads: int, inner: int) -> None:
    """Raise unless sinusoids and heads divide the width."""
    check_at_least("heads", heads, 1)
    check_at_least("inner", inner, 1)
    check_at_least("width", width, 2)
    if width % 2:
        raise ValueError(f"width must be even, for as many sines as cosines, got {width}")
    if width % heads:
        raise ValueError(f"width must be a multiple of heads = {heads}, got {width}")


def check_clusters(vocabulary: int, width: int, cutoffs: Sequence[int], shrinkage: int) -> None:
    """Raise unless the cutoffs divide the vocabulary, and each table has a width."""
    check_at_least("vocabulary", vocabulary, 1)
    check_at_least("shrinkage", shrinkage, 1)
    check_integers("cutoffs", cutoffs)
    bounds = (0, *cutoffs, vocabulary)
    if any(start >= end for start, end in itertools.pairwise(bounds)):
        raise ValueError(
            f"cutoffs must increase strictly between 0 and vocabulary = {vocabulary}, "
            f"got {list(cutoffs)}"
        )
    if width < shrinkage ** len(cutoffs):
        raise ValueError(
            f"shrinkage must leave the last table a width, at {len(cutoffs)} cutoffs and "
            f"width = {width}, got {shrinkage}"
        )


def check_attention(memory_length: int, window: int, pre_norm: bool, raw_residual: bool) -> None:
    """Raise unless lengths are lengths and the residual is one of PreLN."""
    check_at_least("memory_length", memory_length, 0)
    check_at_least("window", window, 1)
    if raw_residual and not pre_norm:
        raise ValueError("raw_residual must be False where pre_norm is, got True")


def check_dropout(dropout: float, attention_dropout: float, output_dropout: str) -> None:
    """Raise unless rates are rates."""
    check_rate("dropout", dropout)
    check_rate("attention_dropout", attention_dropout)
    if output_dropout not in ("tokens", "features"):
        raise ValueError(f"output_dropout must be 'tokens' or 'features', got {output_dropout!r}")


def check_words(name: str, words: Tensor, vocabulary: int, shape: torch.Size | None = None) -> None:
    """Raise unless ``words`` are integers ``(B, L)`` inside the vocabulary."""
    if words.dtype not in _INTEGERS or words.dim() != 2 or words.numel() == 0:
        raise ValueError(
            f"{name} must be integers (B, L), got {words.dtype} of shape {tuple(words.shape)}"
        )
    if shape is not None and words.shape != shape:
        raise ValueError(f"{name} must be {tuple(shape)} like tokens, got {tuple(words.shape)}")
    # An accelerator is not waited for.
    if words.device.type == "cpu" and not 0 <= int(words.min()) <= int(words.max()) < vocabulary:
        raise ValueError(
            f"{name} must lie in [0, {vocabulary}), got {int(words.min())} to {int(words.max())}"
        )
