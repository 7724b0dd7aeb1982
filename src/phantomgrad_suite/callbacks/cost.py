"""Seconds of each phase of a step, and peak memory."""

from __future__ import annotations

import gc
import re
import resource
import sys
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer

_STATUS = Path("/proc/self/status")


class CostMeter(Callback):
    """Measures forward, backward and whole-step seconds, epochs, and peak memory.

    On CUDA the phases are bracketed by events, which are read once an epoch, so that measuring
    makes the device wait for nothing. The totals survive an interruption with the checkpoint.

    ``earlier`` holds the seconds that the run took before the checkpoint it goes on from.
    """

    def __init__(self) -> None:
        self.earlier = 0.0
        self._start = time.perf_counter()
        self._seconds: dict[str, float] = defaultdict(float)
        self._counts: dict[str, int] = defaultdict(int)
        self._marks: list[tuple[str, _Mark, _Mark]] = []
        self._last: _Mark | None = None
        self._step_start: _Mark | None = None
        self._epoch_start = _now()
        self._phases: dict[str, float] = defaultdict(float)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Forget the peak of runs that this process has made before."""
        forget_peak_memory(pl_module.device)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock of the epoch (training and evaluation)."""
        self._epoch_start = _now()

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Mark the start of a step and of its forward pass."""
        self._step_start = self._last = _Mark(pl_module.device)

    def on_before_backward(
        self, trainer: Trainer, pl_module: LightningModule, loss: torch.Tensor
    ) -> None:
        """Mark the end of the forward pass."""
        self._close("forward", pl_module.device)

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Mark the end of the backward pass."""
        self._close("backward", pl_module.device)

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Mark the end of the step."""
        self._last = self._step_start
        self._close("step", pl_module.device)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Read the marks, and log the seconds of the epoch."""
        self._read_marks()
        phases = self._phases
        phases["epoch"], phases["epoch_cpu"] = self._since_epoch_start()
        self._phases = defaultdict(float)
        self._counts["epoch"] += 1
        self._counts["epoch_cpu"] += 1
        for name, seconds in phases.items():
            self._seconds[name] += seconds
        pl_module.log_dict({f"seconds/{name}": value for name, value in phases.items()})

    def means(self) -> dict[str, float]:
        """Return the mean seconds of an epoch (and its processor time), a step, and its phases."""
        return {name: self._seconds[name] / self._counts[name] for name in sorted(self._counts)}

    def state_dict(self) -> dict[str, Any]:
        """Return the totals so far, and those of this epoch."""
        self._read_marks()
        return {
            "seconds": dict(self._seconds),
            "counts": dict(self._counts),
            "total": self.earlier + time.perf_counter() - self._start,
            "phases": dict(self._phases),
            "epoch": self._since_epoch_start(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from the totals of a checkpoint."""
        self._seconds = defaultdict(float, state_dict["seconds"])
        self._counts = defaultdict(int, state_dict["counts"])
        self.earlier = state_dict.get("total", 0.0)
        self._phases = defaultdict(float, state_dict.get("phases", {}))
        self._epoch_start = tuple(  # of no matter where an epoch begins: that starts the clock
            now - past for now, past in zip(_now(), state_dict.get("epoch", (0, 0)), strict=True)
        )

    def _since_epoch_start(self) -> tuple[float, float]:
        now = _now()
        return now[0] - self._epoch_start[0], now[1] - self._epoch_start[1]

    def _read_marks(self) -> None:
        for name, start, end in self._marks:
            self._phases[name] += end.since(start)
            self._counts[name] += 1
        self._marks.clear()

    def _close(self, name: str, device: torch.device) -> None:
        mark = _Mark(device)
        if self._last is not None:
            self._marks.append((name, self._last, mark))
        self._last = mark


def _now() -> tuple[float, float]:
    """Return the clock and the time of the processor."""
    return time.perf_counter(), time.process_time()


class _Mark:
    """A point in time: the clock on the CPU, an event on CUDA."""

    def __init__(self, device: torch.device) -> None:
        self._event = None
        if device.type == "cuda":
            self._event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            self._event.record()
        self._time = time.perf_counter()

    def since(self, start: _Mark) -> float:
        if self._event is None or start._event is None:
            return self._time - start._time
        self._event.synchronize()
        return start._event.elapsed_time(self._event) / 1000  # type: ignore[no-any-return]


def forget_peak_memory(device: torch.device) -> None:
    """Have :func:`peak_memory` tell of what comes from now on.

    Only CUDA and Linux can forget; elsewhere it goes on telling of the whole process.
    """
    gc.collect()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak_memory(device: torch.device) -> dict[str, Any]:
    """Return the peak memory: of the allocator on CUDA, else of what the process has resident."""
    if device.type == "cuda":
        return {"kind": "cuda", "peak_bytes": torch.cuda.max_memory_allocated(device)}
    return {"kind": "process", "peak_bytes": _peak_resident()}


def _peak_resident() -> int:
    with suppress(OSError):
        found = re.search(rb"VmHWM:\s+(\d+) kB", _STATUS.read_bytes())
        if found:
            return int(found[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # nothing forgets this one
    return peak * (1 if sys.platform == "darwin" else 1024)
