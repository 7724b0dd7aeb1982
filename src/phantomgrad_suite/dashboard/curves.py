"""The curves of a run: while it goes on from its ``metrics.csv``, afterwards from its record."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

_POINTS = 160  # as many as a small drawing can show
_AXES = ("epoch", "step")

Curve = list[float | None]


def logged(folder: Path) -> dict[str, Curve]:
    """Return the metrics of a run folder by epoch, ``None`` where an epoch has no number.

    Of the logs of several attempts the later one counts. A line that is still being written, or a
    log that cannot be read, is left out.
    """
    epochs: dict[int, dict[str, float]] = {}
    for path in sorted(folder.glob("csv/version_*/metrics.csv"), key=_version):
        with suppress(OSError, UnicodeDecodeError, csv.Error):
            _add(path, epochs)
    names = {name: None for values in epochs.values() for name in values}
    return {name: [epochs[e].get(name) for e in sorted(epochs)] for name in sorted(names)}


def thinned(curve: Sequence[float | None], points: int = _POINTS) -> Curve:
    """Return at most ``points`` values of a curve, evenly taken, its ends among them."""
    if len(curve) <= points:
        return list(curve)
    last = len(curve) - 1
    return [curve[round(i * last / (points - 1))] for i in range(points)]


def latest(curves: Mapping[str, Sequence[float | None]]) -> dict[str, float]:
    """Return the last number of each curve that has one."""
    known = {name: [v for v in curve if v is not None] for name, curve in curves.items()}
    return {name: values[-1] for name, values in known.items() if values}


def _version(path: Path) -> tuple[int, str]:
    number = path.parent.name.removeprefix("version_")
    return (int(number) if number.isdigit() else 0, number)


def _add(path: Path, epochs: dict[int, dict[str, float]]) -> None:
    """Enter what a log says of each epoch; an epoch done again in it is forgotten first."""
    fresh: set[int] = set()
    with path.open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            epoch = _number(line.get("epoch"))
            broken = None in line or None in line.values()  # too many cells, or too few yet
            if broken or epoch is None or not epoch.is_integer():
                continue
            if epoch not in fresh:
                fresh.add(int(epoch))
                epochs[int(epoch)] = {}
            for name, text in line.items():
                value = _number(text)
                if value is not None and name not in _AXES:
                    epochs[int(epoch)][name] = value


def _number(text: str | None) -> float | None:
    """Return a finite number, nothing of anything else."""
    with suppress(ValueError):
        value = float(text or "")
        return value if math.isfinite(value) else None
    return None
