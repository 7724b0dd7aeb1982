"""The order of the data in each process, and its continuation in the middle of an epoch."""

from typing import Any

import pytest
import torch
from lightning.fabric.utilities.distributed import DistributedSamplerWrapper

from phantomgrad_suite.checkpoint.loaders import ResumableLoader, Shuffled

DATA: Any = torch.arange(23)


def loader(processes: int, process: int) -> ResumableLoader:
    sampler = Shuffled(DATA, processes, process)
    return ResumableLoader(DATA, batch_size=2, sampler=sampler, collate_fn=torch.stack)


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_order_of_every_process_continues(processes: int) -> None:
    """Two epochs; the second is interrupted after two batches, and the generator has moved on."""
    seen = []
    for process in range(processes):
        torch.manual_seed(0)
        ours = loader(processes, process)
        first = torch.cat(list(ours))
        ours.sampler.set_epoch(1)
        begun = iter(ours)
        second = [next(begun), next(begun)]
        state = ours.state_dict()
        second += begun
        resumed = loader(processes, process)
        resumed.load_state_dict(state)
        resumed.sampler.set_epoch(1)
        assert torch.equal(torch.cat(list(resumed)), torch.cat(second[2:]))
        assert not torch.equal(first, torch.cat(second))
        seen.append(first)
    assert set(torch.cat(seen).tolist()) == set(range(23))
    assert len(torch.cat(seen)) == -(-23 // processes) * processes


def test_order_of_several_processes_is_that_of_lightning() -> None:
    for process in range(2):
        torch.manual_seed(7)
        ours = list(Shuffled(DATA, 2, process))
        torch.manual_seed(7)
        options: dict[str, Any] = {"num_replicas": 2, "rank": process, "seed": 7}
        assert ours == list(DistributedSamplerWrapper(Shuffled(DATA), **options))
