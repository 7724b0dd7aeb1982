"""Argument checks that several parts share; each names the argument, the rule and the value."""

from __future__ import annotations


def check_damping(damping: float) -> None:
    """Raise unless ``damping`` lies in (0, 1]."""
    if not 0 < damping <= 1:
        raise ValueError(f"damping must lie in (0, 1], got {damping}")


def check_at_least(name: str, value: int, least: int) -> None:
    """Raise unless ``value`` is at least ``least``."""
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")


def check_rate(name: str, value: float) -> None:
    """Raise unless ``value`` is a probability below one."""
    if not 0 <= value < 1:
        raise ValueError(f"{name} must lie in [0, 1), got {value}")
