"""Runs of one experiment, and their statistics."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from phantomgrad_suite.runs import formats
from phantomgrad_suite.runs.metrics import Metric, metric_of
from phantomgrad_suite.runs.records import Record


class Stat(NamedTuple):
    """Mean and population standard deviation (ddof 0) over ``n`` values."""

    mean: float
    std: float
    n: int

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Stat | None:
        """Return the statistics of all finite values, if there are any."""
        known = [value for value in values if value is not None and math.isfinite(value)]
        return cls(statistics.fmean(known), statistics.pstdev(known), len(known)) if known else None


@dataclass(frozen=True)
class Runs:
    """The runs of one experiment: same row, protocol, data, configuration and metric.

    Attributes:
        reduction: the differences from the full protocol, empty for full runs.
        best: over the best test epoch of each run.
        last: over the last epoch of each run.
        selected: over the epoch that each run selected on validation data.
        common: at ``common_epoch`` (counted from 1): of those that all have, that of the best mean.
        objective: of the trials of a search, over the best epoch of each run.
    """

    records: tuple[Record, ...]
    metric: Metric
    reduction: str
    best: Stat | None
    last: Stat | None
    selected: Stat | None
    common: Stat | None
    common_epoch: int
    objective: Stat | None

    @classmethod
    def of(cls, records: Sequence[Record]) -> Runs:
        """Return the statistics of some runs of one experiment."""
        first, metric = records[0], metric_of(records[0].result.metric, records[0].result.mode)
        changes = ", ".join(first.changes)
        reduced = changes or first.protocol != "full"
        common, epoch = _best_common_epoch(records, metric)
        return cls(
            records=tuple(records),
            metric=metric,
            reduction=f"{first.protocol}: {changes or 'unknown'}" if reduced else "",
            best=Stat.of(record.result.best for record in records),
            last=Stat.of(record.result.last for record in records),
            selected=Stat.of(record.result.selected for record in records),
            common=common,
            common_epoch=epoch,
            objective=Stat.of(map(_objective, records)),
        )

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
        """The printed name of the data set."""
        return self.first.label.get("dataset", "")

    @property
    def data(self) -> str:
        """The fingerprint of the data."""
        return str(self.first.data.get("fingerprint", ""))

    @property
    def searched(self) -> dict[str, str]:
        """The ``objective`` and ``direction`` of a search, empty for other runs."""
        return self.first.config.get("runtime", {}).get("tune") or {}

    @property
    def hardware(self) -> set[str]:
        """What the runs ran on."""
        return set(map(_hardware, self.records))

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
    return [Runs.of(members) for members in groups.values()]


def describe(runs: Runs, others: Sequence[Runs]) -> str:
    """Return how runs differ from the full protocol and from ``others`` on their data set.

    Data are named where rows of one data set differ in them, a configuration where one row has
    several.
    """
    parts = [runs.reduction] if runs.reduction else []
    peers = [other for other in others if other.reduction == runs.reduction]
    if any(other.data != runs.data for other in peers):
        parts.append(f"data {_short(runs.data)}")
    twins = [o.first for o in peers if o.first.row == runs.first.row and o.data == runs.data]
    if any(twin.config_hash != runs.first.config_hash for twin in twins):
        parts.append(f"configuration {_short(runs.first.config_hash)}")
    return "; ".join(parts)


def _short(digest: str) -> str:
    return digest.rsplit(":", 1)[-1][:8] or "unknown"


def _objective(record: Record) -> float | None:
    """Return the best finite value by which a search judges a run; ``None`` for other runs."""
    settings = record.config.get("runtime", {}).get("tune")
    if not settings:
        return None
    best = {"minimize": min, "maximize": max}[settings["direction"]]
    curve = record.curves.get(settings["objective"], [])
    return best((v for v in curve if v is not None and math.isfinite(v)), default=None)


def _best_common_epoch(records: Sequence[Record], metric: Metric) -> tuple[Stat | None, int]:
    curves = [record.curves.get(metric.curve, []) for record in records]
    means = [(Stat.of(values), i) for i, values in enumerate(zip(*curves, strict=False), 1)]
    complete = [(stat, i) for stat, i in means if stat is not None and stat.n == len(records)]
    sign = -1 if metric.higher_is_better else 1
    return min(complete, key=lambda found: sign * found[0].mean, default=(None, 0))


def _hardware(record: Record) -> str:
    """Return the device of a run and how many processes shared it."""
    environment = record.environment
    on_gpu = record.memory.get("kind") == "cuda" and bool(environment.get("accelerator"))
    device, processes = formats.hardware(environment, on_gpu), environment.get("processes", 1)
    if processes == 1:
        return device
    if on_gpu:
        return f"{processes} x {device}"
    processor, threads = device.rsplit(", ", 1)
    return f"{processor}, {processes} processes of {threads}"
