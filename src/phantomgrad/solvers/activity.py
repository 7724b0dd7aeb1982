"""Whether any sample of a solve is still active, read without stalling an accelerator."""

from collections import deque

import torch
from torch import Tensor


class ActivityFlag:
    """Answers "is any sample still active?", on CUDA with the answer of ``lag`` questions ago.

    On the CPU the answer is immediate. On CUDA each question starts a copy to pinned memory and
    waits only for the copy started ``lag`` questions earlier, so that the device always has work
    queued. A late answer costs at most ``lag`` evaluations and changes no result, since samples
    that have stopped are frozen.
    """

    def __init__(self, device: torch.device, lag: int = 2) -> None:
        self._cuda = device.type == "cuda"
        self._lag = lag
        self._pending: deque[tuple[Tensor, torch.cuda.Event]] = deque()

    def any(self, active: Tensor) -> bool:
        """Return whether a sample is active (on CUDA: was, ``lag`` questions ago)."""
        if not self._cuda:
            return bool(active.any())
        host = torch.empty((), dtype=torch.bool, device="cpu", pin_memory=True)
        host.copy_(active.any(), non_blocking=True)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(active.device))
        self._pending.append((host, event))
        if len(self._pending) <= self._lag:
            return True
        answer, ready = self._pending.popleft()
        ready.synchronize()
        return bool(answer)
