"""How durations and hardware are printed, in tables, pages and log lines alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def duration(seconds: float) -> str:
    """Return seconds in a suitable unit: ``42 s``, ``3.5 min``, ``2.1 h``, ``4.0 days``."""
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s"


def hardware(environment: Mapping[str, Any], on_gpu: bool) -> str:
    """Return the device in the ``environment`` of a record, for example ``AMD EPYC, 2 threads``."""
    if on_gpu:
        return str(environment.get("accelerator"))
    processor = environment.get("processor", "unknown processor")
    threads = environment.get("threads")
    return f"{processor}, {threads} thread{'s' * (threads != 1)}"
