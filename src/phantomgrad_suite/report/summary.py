"""Statistics over the runs of one experiment."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from phantomgrad_suite.runs.metrics import Metric, metric_of
from phantomgrad_suite.runs.records import Record


@dataclass(frozen=True)
class Stat:
    """Mean and population standard deviation (ddof 0) over ``n`` runs."""

    mean: float
    std: float
    n: int

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Stat | None:
        """Summarise the values that are there; ``None`` without any."""
        present = [value for value in values if value is not None]
        if not present:
            return None
        return cls(statistics.fmean(present), statistics.pstdev(present), len(present))


@dataclass(frozen=True)
class Summary:
    """The runs of one experiment: equal row, protocol, data and configuration.

    Attributes:
        records: the runs.
        metric: what they measured.
        best: over each run's best test epoch.
        last: over each run's last epoch.
        selected: over the epoch each run chose on validation data.
        common: at the one epoch with the best mean over the runs.
        common_epoch: that epoch, from 1.
    """

    records: tuple[Record, ...]
    metric: Metric
    best: Stat | None
    last: Stat | None
    selected: Stat | None
    common: Stat | None
    common_epoch: int | None

    @property
    def n(self) -> int:
        """The number of runs."""
        return len(self.records)

    @property
    def top(self) -> float | None:
        """The best test value of the best run."""
        values = [r.result.best for r in self.records if r.result.best is not None]
        if not values:
            return None
        return max(values) if self.metric.higher_is_better else min(values)

    @property
    def collapses(self) -> list[int]:
        """The first epoch marked as collapsed of each run that has one."""
        found = []
        for record in self.records:
            curves = [c for name, c in record.curves.items() if name.startswith("collapse/")]
            marked = [curve.index(1) + 1 for curve in curves if 1 in curve]
            found += [min(marked)] if marked else []
        return found

    def mean(self, group: str, name: str) -> float | None:
        """Return the mean over the runs of ``record.<group>[name]``, where it is known."""
        stat = Stat.of(getattr(record, group).get(name) for record in self.records)
        return None if stat is None else stat.mean

    @property
    def objective(self) -> tuple[str, Stat] | None:
        """What a search judged the runs by, and its mean; ``None`` outside of a search."""
        found = [objective for r in self.records if (objective := objective_of(r))]
        stat = Stat.of(objective.value for objective in found)
        return None if stat is None else (found[0].curve, stat)

    @property
    def hardware(self) -> frozenset[str]:
        """What the runs were run on, in words."""
        return frozenset(_hardware(record) for record in self.records)

    def total_seconds(self) -> float | None:
        """Return the seconds of all runs together, ``None`` if one is not known."""
        totals = [record.seconds.get("total") for record in self.records]
        return None if None in totals else sum(t for t in totals if t is not None)


class Objective(NamedTuple):
    """What a search judges a run by.

    Attributes:
        curve: its name, for example ``validation/loss``.
        sign: 1 where less is better, -1 where more is.
        value: of the best epoch.
    """

    curve: str
    sign: int
    value: float


def objective_of(record: Record) -> Objective | None:
    """Return what a run counted for in a search; ``None`` outside of one, or if never finite."""
    settings = record.config.get("tune")
    if not settings:
        return None
    curve = record.curves.get(settings["objective"], [])
    sign = {"minimize": 1, "maximize": -1}[settings["direction"]]
    finite = [value for value in curve if value is not None and math.isfinite(value)]
    best = min(finite, key=lambda value: sign * value, default=None)
    return None if best is None else Objective(settings["objective"], sign, best)


def summarise(records: Sequence[Record]) -> Summary:
    """Summarise runs of one experiment (see :class:`Summary`)."""
    metric = metric_of(records[0].result.metric, records[0].result.mode)
    common, epoch = _best_common_epoch(records, metric)
    return Summary(
        records=tuple(records),
        metric=metric,
        best=Stat.of(r.result.best for r in records),
        last=Stat.of(r.result.last for r in records),
        selected=Stat.of(r.result.selected for r in records),
        common=common,
        common_epoch=epoch,
    )


def _best_common_epoch(records: Sequence[Record], metric: Metric) -> tuple[Stat | None, int | None]:
    """Return the best mean over the runs at one epoch that all of them have, and that epoch."""
    curves = [record.curves.get(metric.curve, []) for record in records]
    best, best_epoch = None, None
    for epoch, values in enumerate(zip(*curves, strict=False), start=1):
        stat = Stat.of(values)
        if stat is None or stat.n < len(records):
            continue
        sign = 1 if metric.higher_is_better else -1
        if best is None or sign * stat.mean > sign * best.mean:
            best, best_epoch = stat, epoch
    return best, best_epoch


def _hardware(record: Record) -> str:
    environment, processes = record.environment, _processes(record)
    device = environment.get("accelerator") if record.memory.get("kind") == "cuda" else None
    if device:
        return f"{processes} x {device}" if processes > 1 else str(device)
    threads = environment.get("threads", "?")
    plural = "" if threads == 1 else "s"
    shared = f"{processes} processes of " if processes > 1 else ""
    return f"{environment.get('processor', 'unknown processor')}, {shared}{threads} thread{plural}"


def _processes(record: Record) -> int:
    """Return how many processes shared a run; earlier records tell by their configuration alone."""
    if "processes" in record.environment:
        return int(record.environment["processes"])
    trainer = record.config.get("trainer") or {}
    devices, nodes = trainer.get("devices", 1), trainer.get("num_nodes", 1)
    return devices * nodes if type(devices) is int and devices > 0 else 1
