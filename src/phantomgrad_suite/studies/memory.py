"""Peak memory of a call, counted exactly."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

_CPU = 0  # "Device Type" in the profiler's trace


def peak_bytes(run: Callable[[], object], device: torch.device) -> int:
    """Return by how many bytes ``run`` raises the memory in use at its highest point.

    On CUDA the allocator counts. On the CPU torch's profiler lists every allocation and release
    of torch's allocator, temporaries inside an operation included, and their running sum is the
    memory in use. (The resident set of the process would include freed pages as well.)
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    changes = [
        (event["ts"], event["args"]["Bytes"])
        for event in events
        if event.get("name") == "[memory]" and event["args"]["Device Type"] == _CPU
    ]
    changes.sort(key=lambda change: change[0])
    peak: int = max(accumulate((size for _, size in changes), initial=0))
    return peak
