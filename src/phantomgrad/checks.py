"""Argument checks: each error names the argument, the rule and the value."""

import math
from collections.abc import Sequence
from numbers import Integral

import torch
from torch import Tensor

from phantomgrad.context import cheap_to_read

_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class ShapeError(ValueError):
    """An input whose shape does not fit the model."""


def check_damping(damping: object) -> None:
    """Raise unless ``damping`` is a number in (0, 1]."""
    if not isinstance(damping, float | int) or not 0 < damping <= 1:
        raise ValueError(f"damping must lie in (0, 1], got {damping!r}")


def check_at_least(name: str, value: object, least: int) -> None:
    """Raise unless ``value`` is an integer of at least ``least``."""
    if not isinstance(value, int | Integral) or isinstance(value, bool):
        raise ValueError(f"{name} must be an integer, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")


def check_choice(name: str, value: object, choices: Sequence[object]) -> None:
    """Raise unless ``value`` is one of ``choices``."""
    if value not in choices:
        allowed = " or ".join(map(repr, choices))
        raise ValueError(f"{name} must be {allowed}, got {value!r}")


def check_list(name: str, values: object) -> Sequence[object]:
    """Return ``values``; raise unless it is a sequence other than a string."""
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise ValueError(f"{name} must be a list, got {values!r}")
    return values


def check_integers(name: str, values: object) -> None:
    """Raise unless ``values`` is a sequence of integers."""
    members = check_list(name, values)
    if not all(isinstance(v, int | Integral) and not isinstance(v, bool) for v in members):
        raise ValueError(f"{name} must hold integers, got {list(members)}")


def check_rate(name: str, value: object) -> None:
    """Raise unless ``value`` is a probability below one."""
    if not isinstance(value, float | int) or not 0 <= value < 1:
        raise ValueError(f"{name} must lie in [0, 1), got {value!r}")


def check_not_negative(name: str, value: object) -> None:
    """Raise unless ``value`` is a finite number that is not negative."""
    if not isinstance(value, float | int) or not 0 <= value < math.inf:
        raise ValueError(f"{name} must be finite and not negative, got {value!r}")


def check_tokens(
    name: str, tokens: Tensor, vocabulary: int, shape: torch.Size | None = None
) -> None:
    """Raise unless ``tokens`` are integers ``(B, L)`` below ``vocabulary``."""
    if tokens.dtype not in _INTEGERS or tokens.dim() != 2 or tokens.numel() == 0:
        raise ValueError(
            f"{name} must be integers (B, L), got {tokens.dtype} of shape {tuple(tokens.shape)}"
            + ("" if tokens.numel() else "; neither B nor L may be 0")
        )
    if shape is not None and tokens.shape != shape:
        got = tuple(tokens.shape)
        raise ValueError(f"{name} must have the shape of tokens, {tuple(shape)}, got {got}")
    if cheap_to_read(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) < vocabulary:
        raise ValueError(
            f"{name} must lie in [0, {vocabulary}), got {int(tokens.min())} to {int(tokens.max())}"
        )
