"""Seconds of epochs, of training steps and of an evaluation of f, and peak memory."""

import gc
import resource
import sys
import time
from collections import defaultdict
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor

from phantomgrad.closure import LayerMap
from phantomgrad.deq import DEQ
from phantomgrad.nn import one_pass
from phantomgrad.solvers import Map
from phantomgrad_suite.callbacks.capture import detached, watch


class CostMeter(Callback):
    """Measures epochs and training steps, in seconds.

    ``step_cpu`` and ``epoch_cpu`` are CPU seconds, to which other processes do not add. The phases
    of a step are measured by the throughput study, on a machine that does nothing else.
    """

    def __init__(self) -> None:
        self.earlier = 0.0  # seconds before the checkpoint from which the run was resumed
        self._start = time.perf_counter()
        self._seconds: dict[str, float] = defaultdict(float)  # of the run, by phase
        self._counts: dict[str, int] = defaultdict(int)
        self._epoch: dict[str, float] = defaultdict(float)  # of this epoch, by phase
        self._clocks = _clocks()

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Reset the peak memory of this process, which CUDA and Linux support."""
        gc.collect()
        if pl_module.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(pl_module.device)
        else:
            with suppress(OSError):
                Path("/proc/self/clear_refs").write_text("5", encoding="ascii")

    def on_train_epoch_start(self, *_: Any) -> None:  # not of an epoch that is continued
        self._epoch.clear()
        self._clocks = _clocks()

    def on_train_batch_start(self, *_: Any) -> None:
        self._step_cpu = time.process_time()

    def on_train_batch_end(self, *_: Any) -> None:
        self._epoch["step_cpu"] += time.process_time() - self._step_cpu
        self._counts["step_cpu"] += 1

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._read()
        for name, seconds in self._epoch.items():
            self._seconds[name] += seconds
        for name in self._clocks:
            self._counts[name] += 1
        pl_module.log_dict({f"seconds/{name}": seconds for name, seconds in self._epoch.items()})
        self._epoch.clear()

    def means(self) -> dict[str, float]:
        return {name: self._seconds[name] / self._counts[name] for name in sorted(self._counts)}

    def cpu_over_wall(self) -> float | None:
        """Return the CPU time of all epochs over their wall-clock time: the busy share of a thread.

        Less than the number of threads means that other work shared the machine.
        """
        wall = self._seconds["epoch"]
        return self._seconds["epoch_cpu"] / wall if wall else None

    def state_dict(self) -> dict[str, Any]:
        self._read()
        total = self.earlier + time.perf_counter() - self._start
        sums = {"seconds": dict(self._seconds), "counts": dict(self._counts)}
        return {"total": total, "epoch": dict(self._epoch), **sums}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._seconds.update(state_dict["seconds"])
        self._counts.update(state_dict["counts"])
        self._epoch.update(state_dict["epoch"])
        self._clocks, self.earlier = _clocks(), state_dict["total"]

    def _read(self) -> None:
        """Add up the clocks since the last reading."""
        before, self._clocks = self._clocks, _clocks()
        for name, now in self._clocks.items():
            self._epoch[name] += now - before[name]


class EvaluationTime(Callback):
    """Logs the seconds of one evaluation of f, once an epoch: a unit for times of this machine.

    It is measured at the equilibria of the epoch's second batch, if there are two, after its step:
    f is compiled after the first step of a run. It is the sum over all layers, in CPU
    seconds (``seconds/f_cpu``), or on CUDA in seconds of the device (``seconds/f``).
    The run is not changed. A :class:`CostMeter` must come before, so that the step has ended.
    """

    def __init__(self) -> None:
        self._watched = ExitStack()
        self._passes: list[tuple[LayerMap, Tensor]] = []

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if batch_idx == min(1, trainer.num_training_batches - 1):
            self._watched = watch(pl_module, self._keep)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        self._watched.close()
        if self._passes:
            with trainer.precision_plugin.forward_context():
                total = sum(evaluation_seconds(*each) for each in self._passes)
            name = "seconds/f" if pl_module.device.type == "cuda" else "seconds/f_cpu"
            pl_module.log(name, total, on_step=False, on_epoch=True, batch_size=1)
            self._passes.clear()

    def _keep(self, layer: DEQ, f: Map, z: Tensor, attached: Tensor) -> None:
        assert isinstance(f, LayerMap)
        self._passes.append((detached(f), attached.detach()))


@torch.no_grad()
def evaluation_seconds(f: LayerMap, z: Tensor) -> float:
    """Return the seconds of an evaluation of f as it is in a pass, compiled if it is there.

    It is the third one: the first draws masks, the second may compile.
    """
    cuda = z.device.type == "cuda"

    def clock() -> float:
        if not cuda:
            return time.process_time()
        torch.cuda.synchronize(z.device)
        return time.perf_counter()

    with torch.random.fork_rng([z.device] if cuda else []), one_pass(f.cell):
        f(z)
        f(z)
        start = clock()
        f(z)
        return clock() - start


def _clocks() -> dict[str, float]:
    return {"epoch": time.perf_counter(), "epoch_cpu": time.process_time()}


def peak_memory(device: torch.device) -> dict[str, Any]:
    """Return the peak memory of the CUDA allocator, or the peak resident set of the process."""
    if device.type == "cuda":
        return {"kind": "cuda", "peak_bytes": torch.cuda.max_memory_allocated(device)}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"kind": "process", "peak_bytes": peak * (1 if sys.platform == "darwin" else 1024)}
