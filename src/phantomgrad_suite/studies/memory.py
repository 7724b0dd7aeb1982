"""Peak memory of a piece of code, by exact accounting."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

_CPU = 0  # "Device Type" of the profiler's trace


def peak_bytes(run: Callable[[], object], device: torch.device) -> int:
    """Return by how much ``run`` raises the memory in use at its highest point.

    On CUDA the allocator keeps the count. On the CPU torch's profiler lists every allocation and
    release of its allocator, temporaries inside an operation included; their running sum is the
    memory in use. (The resident set of the process would show freed pages as well.)
    """
    if device.type == "cuda":
        return _cuda_peak(run, device)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        trace = json.loads(path.read_text(encoding="utf-8"))
    changes = [
        (event["ts"], event["args"]["Bytes"])
        for event in trace["traceEvents"]
        if event.get("name") == "[memory]" and event["args"]["Device Type"] == _CPU
    ]
    in_use = peak = 0
    for _, size in sorted(changes, key=lambda change: change[0]):
        in_use += size
        peak = max(peak, in_use)
    return peak


def _cuda_peak(run: Callable[[], object], device: torch.device) -> int:
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    run()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before
