"""Runs of one experiment, and their statistics."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from phantomgrad_suite.report.catalogue import DATASETS, REPEATED
from phantomgrad_suite.runs import formats
from phantomgrad_suite.runs.identity import split_row
from phantomgrad_suite.runs.metrics import Metric, metric_of
from phantomgrad_suite.runs.records import Record

_FORMS = {
    "ImplicitGradient": "implicit",
    "UnrolledPhantomGradient": "UPG",
    "NeumannPhantomGradient": "NPG",
    "BackpropThroughSolver": "BPTT",
}


class Gradient(NamedTuple):
    """A phantom gradient: ``UPG`` or ``NPG``, λ and k."""

    form: str
    damping: float
    steps: int


def gradient_of(config: Mapping[str, Any]) -> Gradient | None:
    """Return the phantom gradient of a configuration, if it has one with a fixed λ."""
    gradient = config.get("gradient") or {}
    form, damping = _form(gradient), gradient.get("damping")
    if form not in ("UPG", "NPG") or not isinstance(damping, int | float):
        return None
    return Gradient(form, float(damping), gradient["steps"])


def family_of(config: Mapping[str, Any]) -> str:
    """Return the family of the gradient of a configuration, empty if it is none of the usual."""
    gradient = gradient_of(config)
    if gradient == ("UPG", 1.0, 1):
        return "one step"
    return _form(config.get("gradient") or {})


def _form(gradient: Mapping[str, Any]) -> str:
    return _FORMS.get(str(gradient.get("_target_", "")).rpartition(".")[2], "")


class Stat(NamedTuple):
    """Mean and sample standard deviation (ddof 1; 0 of a single value) over ``n`` values."""

    mean: float
    std: float
    n: int

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Stat | None:
        known = [value for value in values if value is not None and math.isfinite(value)]
        if not known:
            return None
        std = statistics.stdev(known) if len(known) > 1 else 0.0
        return cls(statistics.fmean(known), std, len(known))


class Runs:
    """The runs of one experiment: same row, protocol, data, configuration and metric.

    Curves and means are those of ``records``, the runs that did not diverge; ``n`` counts all.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self.n, self.all = len(records), tuple(records)
        self.diverged = tuple(record for record in records if record.diverged)
        self.records = tuple(record for record in records if not record.diverged)
        first = self.first = records[0]
        self.metric = metric_of(first.result.metric, first.result.mode)
        self.key = first.label.get("dataset", "")
        self.dataset = DATASETS.get(self.key, self.key)  # its printed name
        self.data = str(first.data.get("fingerprint", ""))
        self.scale, self.unscaled_row = split_row(first.row)
        # What the scale reduces in all rows alike, and other differences from the full protocol.
        named = {*first.config["label"]["reduced"], first.data.get("reduced")} if self.scale else {}
        self.scaled = ", ".join(c for c in first.changes if c in named and c not in REPEATED)
        changes = ", ".join(change for change in first.changes if change not in named)
        reduced = changes or (first.protocol != "full" and not self.scaled)
        self.reduction = f"{first.protocol}: {changes or 'unknown'}" if reduced else ""
        counted = f"{self.n} run{'s' * (self.n != 1)}, {len(self.diverged)} diverged"
        self.fate = counted if self.diverged else ""
        # Over the best test epoch of each run, the last one, and that selected on validation data.
        self.best = Stat.of(record.result.best for record in self.records)
        self.last = Stat.of(record.result.last for record in self.records)
        self.selected = Stat.of(record.result.selected for record in self.records)
        # At the epoch (counted from 1) that all have and whose mean is best.
        self.common, self.common_epoch = _best_common_epoch(self.records, self.metric)
        # Of a search: its objective and direction, and the best objective of each run.
        self.searched: dict[str, str] = first.config.get("runtime", {}).get("tune") or {}
        self.objective = Stat.of(map(_objective, self.records))
        self.hardware = set(map(_hardware, records))

    def mean(self, group: str, name: str) -> float | None:
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
    return [Runs(members) for members in groups.values()]


def describe(runs: Runs, others: Sequence[Runs]) -> str:
    """Return how runs differ from the full protocol and from ``others`` on their data set.

    Data are named where rows of one data set differ in them, a configuration where one row has
    several.
    """
    parts = [runs.reduction] if runs.reduction else []
    peers = [other for other in others if other.reduction == runs.reduction]
    if any(other.data != runs.data for other in peers):
        parts.append(f"data {short(runs.data)}")
    twins = [o.first for o in peers if o.first.row == runs.first.row and o.data == runs.data]
    if any(twin.config_hash != runs.first.config_hash for twin in twins):
        parts.append(f"configuration {short(runs.first.config_hash)}")
    return "; ".join(parts)


def short(digest: str) -> str:
    """Return the first digits of a fingerprint or hash."""
    return digest.rsplit(":", 1)[-1][:8] or "unknown"


def step_in_f(record: Record) -> float | None:
    """Return the mean CPU time of a training step in evaluations of f, or None if not recorded.

    Times of f differ between machines as those of steps do, so runs on several can be compared.
    """
    seconds, f = (record.curves.get(f"seconds/{name}") for name in ("step_cpu", "f_cpu"))
    if not seconds or not f or not record.seconds.get("step_cpu"):
        return None
    steps = sum(seconds) / record.seconds["step_cpu"] / len(seconds)  # of an epoch
    trained = [(s, t) for s, t in zip(seconds, f, strict=True) if t is not None]
    if not trained:
        return None  # pretraining measures no f
    times, evaluations = zip(*trained, strict=True)
    return float(statistics.fmean(times) / steps / statistics.median(evaluations))


def cpu_over_wall(record: Record) -> float | None:
    """Return the CPU time of a run's epochs over their wall-clock time, or None if not recorded."""
    wall, cpu = (record.seconds.get(name) for name in ("epoch", "epoch_cpu"))
    return cpu / wall if cpu and wall else None


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
