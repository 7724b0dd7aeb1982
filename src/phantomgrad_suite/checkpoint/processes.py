"""States that differ between the processes of a distributed run."""

from __future__ import annotations

from typing import Any

import torch.distributed


def of_all_processes(state: Any) -> list[Any]:
    """Return the state of each process, in their order; all of them must call this."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return [state]
    states: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(states, state)
    return states


def of_this_process(states: list[Any]) -> Any:
    """Return the own one of such states; the first, of a run with fewer processes."""
    alone = not (torch.distributed.is_available() and torch.distributed.is_initialized())
    rank = 0 if alone else torch.distributed.get_rank()
    return states[rank if rank < len(states) else 0]
