"""Runs of one experiment, and their statistics."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from phantomgrad_suite.runs import formats
from phantomgrad_suite.runs.metrics import Metric, metric_of
from phantomgrad_suite.runs.records import Record


@dataclass(frozen=True)
class Stat:
    """Mean and population standard deviation (ddof 0) over ``n`` values."""

    mean: float
    std: float
    n: int

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Stat | None:
        """Return the statistics of all values that are not ``None``, if there are any."""
        known = [value for value in values if value is not None]
        return cls(statistics.fmean(known), statistics.pstdev(known), len(known)) if known else None


class Objective(NamedTuple):
    """What a search judges a run by.

    Attributes:
        curve: its name, for example ``validation/loss``.
        sign: 1 if smaller values are better, -1 if larger ones are.
        value: the best over the epochs.
    """

    curve: str
    sign: int
    value: float


def objective_of(record: Record) -> Objective | None:
    """Return the objective of a run of a search; ``None`` for other runs, or if never finite."""
    settings = record.config.get("tune")
    if not settings:
        return None
    curve = record.curves.get(settings["objective"], [])
    sign = {"minimize": 1, "maximize": -1}[settings["direction"]]
    finite = [value for value in curve if value is not None and math.isfinite(value)]
    best = min(finite, key=lambda value: sign * value, default=None)
    return None if best is None else Objective(settings["objective"], sign, best)


@dataclass(frozen=True)
class Runs:
    """The runs of one experiment: same row, protocol, data, configuration and metric."""

    records: tuple[Record, ...]

    @property
    def first(self) -> Record:
        """The first of them, for what all have in common."""
        return self.records[0]

    @property
    def n(self) -> int:
        """The number of runs."""
        return len(self.records)

    @property
    def dataset(self) -> str:
        """The name of the data set in the records."""
        return self.first.label.get("dataset", "")

    @property
    def metric(self) -> Metric:
        """What they measured."""
        return metric_of(self.first.result.metric, self.first.result.mode)

    @property
    def reduction(self) -> str:
        """The differences from the full protocol, empty for full runs."""
        protocol, changes = self.first.protocol, ", ".join(self.first.changes)
        return "" if protocol == "full" and not changes else f"{protocol}: {changes or 'unknown'}"

    @property
    def data(self) -> str:
        """The fingerprint of the data."""
        return str(self.first.data.get("fingerprint", ""))

    @cached_property
    def best(self) -> Stat | None:
        """Over the best test epoch of each run."""
        return Stat.of(record.result.best for record in self.records)

    @cached_property
    def last(self) -> Stat | None:
        """Over the last epoch of each run."""
        return Stat.of(record.result.last for record in self.records)

    @cached_property
    def selected(self) -> Stat | None:
        """Over the epoch that each run selected on validation data."""
        return Stat.of(record.result.selected for record in self.records)

    @cached_property
    def common(self) -> tuple[Stat, int] | None:
        """The best mean at an epoch that all runs have, and this epoch, counted from 1."""
        curves = [record.curves.get(self.metric.curve, []) for record in self.records]
        means = [(Stat.of(values), i) for i, values in enumerate(zip(*curves, strict=False), 1)]
        complete = [(stat, i) for stat, i in means if stat is not None and stat.n == self.n]
        sign = -1 if self.metric.higher_is_better else 1
        return min(complete, key=lambda found: sign * found[0].mean, default=None)

    @property
    def top(self) -> float | None:
        """The best test value of the best run."""
        values = [r.result.best for r in self.records if r.result.best is not None]
        return (max if self.metric.higher_is_better else min)(values, default=None)

    @property
    def collapses(self) -> list[int]:
        """For each run that collapsed, the first epoch with a sign of it."""
        found = []
        for record in self.records:
            curves = [c for name, c in record.curves.items() if name.startswith("collapse/")]
            marked = [curve.index(1) + 1 for curve in curves if 1 in curve]
            found += [min(marked)] if marked else []
        return found

    @property
    def objective(self) -> tuple[str, Stat] | None:
        """The objective of a search and its mean over the runs."""
        found = [objective for r in self.records if (objective := objective_of(r))]
        stat = Stat.of(objective.value for objective in found)
        return None if stat is None else (found[0].curve, stat)

    @property
    def hardware(self) -> frozenset[str]:
        """The hardware that they ran on."""
        return frozenset(map(_hardware, self.records))

    @property
    def total_seconds(self) -> float | None:
        """The duration of all runs together, if it is known of each."""
        totals = [record.seconds.get("total") for record in self.records]
        return None if None in totals else sum(t for t in totals if t is not None)

    def mean(self, group: str, name: str) -> float | None:
        """Return the mean of ``record.<group>[name]`` over the runs that have it."""
        stat = Stat.of(getattr(record, group).get(name) for record in self.records)
        return None if stat is None else stat.mean


def group_runs(records: Iterable[Record]) -> list[Runs]:
    """Return the runs of each experiment, in the order of their first record."""
    groups: dict[tuple[object, ...], list[Record]] = {}
    for record in records:
        protocol = (record.protocol, *record.changes)
        experiment = (record.row, record.config_hash, record.result.metric)
        data = record.data.get("fingerprint", "")
        groups.setdefault((protocol, experiment, data), []).append(record)
    return [Runs(tuple(members)) for members in groups.values()]


def describe(runs: Runs, others: Sequence[Runs]) -> str:
    """Return how runs differ from the full protocol and from ``others`` on their data set.

    Data are named where rows of one data set differ in them, a configuration where one row has
    several.
    """
    parts = [runs.reduction] if runs.reduction else []
    peers = [other for other in others if other.reduction == runs.reduction]
    if any(other.data != runs.data for other in peers):
        parts.append(f"data {_short(runs.data)}")
    twins = [o for o in peers if o.first.row == runs.first.row and o.data == runs.data]
    if any(other.first.config_hash != runs.first.config_hash for other in twins):
        parts.append(f"configuration {_short(runs.first.config_hash)}")
    return "; ".join(parts)


def _short(digest: str) -> str:
    return digest.rsplit(":", 1)[-1][:8] or "unknown"


def _hardware(record: Record) -> str:
    """Return the device of a run, and how many processes shared it."""
    environment = record.environment
    on_gpu = record.memory.get("kind") == "cuda" and bool(environment.get("accelerator"))
    device, processes = formats.hardware(environment, on_gpu), _processes(record)
    if processes == 1:
        return device
    if on_gpu:
        return f"{processes} x {device}"
    processor, threads = device.rsplit(", ", 1)
    return f"{processor}, {processes} processes of {threads}"


def _processes(record: Record) -> int:
    """Return how many processes shared a run; older records have only their configuration."""
    if "processes" in record.environment:
        return int(record.environment["processes"])
    trainer = record.config.get("trainer") or {}
    devices, nodes = trainer.get("devices", 1), trainer.get("num_nodes", 1)
    return devices * nodes if type(devices) is int and devices > 0 else 1
