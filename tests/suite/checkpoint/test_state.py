"""Random numbers and the order of the data after a restart equal those of an uninterrupted run."""

import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from phantomgrad_suite.checkpoint.loaders import ResumableLoader, Shuffled
from phantomgrad_suite.checkpoint.state import RunState

HARDWARE = dict.fromkeys(("git", "processor", "threads", "accelerator"))
FACTS = {"environment": HARDWARE, "started": "now", "config_hash": "c0ffee"}
TRAINER = SimpleNamespace(train_dataloader=[])
RESUMABLE = SimpleNamespace(train_dataloader=ResumableLoader([]))
TASK = None


def draw():
    return float(torch.rand(())), float(np.random.rand()), random.random()  # noqa: NPY002


@pytest.fixture
def saved(tmp_path):
    """The file of a checkpoint."""
    content = {}
    draw()
    before = RunState({**FACTS, "started": "before"})
    before.on_save_checkpoint(TRAINER, TASK, content)
    torch.save(content, tmp_path / "last.ckpt")
    return tmp_path / "last.ckpt"


def test_every_generator_is_restored_once(saved):
    expected = draw()
    state = RunState(FACTS)
    state.resume(saved)
    assert draw() != expected
    state.on_train_start(TRAINER, TASK)
    assert draw() == expected
    state.on_train_start(TRAINER, TASK)
    assert draw() != expected
    assert [attempt["started"] for attempt in state.attempts] == ["before", "now"]


def test_other_hardware_is_named(caplog, saved):
    """Bits are promised for one type of processor and one number of threads."""
    for threads in (None, 2):
        RunState({**FACTS, "environment": {**HARDWARE, "threads": threads}}).resume(saved)
    (line,) = caplog.messages
    assert line.startswith("resumed on other hardware (threads None, now 2): the results may")


def test_a_loader_that_cannot_continue_is_named(caplog, saved):
    for path, trainer in ((saved, TRAINER), (None, TRAINER), (saved, RESUMABLE)):
        state = RunState(FACTS)
        if path:
            state.resume(path)
        state.on_train_start(trainer, TASK)
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "the loader of the training data has no state_dict"
    ]


def test_gpus_of_a_distributed_run_draw_different_numbers(monkeypatch):
    """What the CPU draws is common to all processes."""
    seeds = []
    monkeypatch.setattr(torch.cuda, "manual_seed", seeds.append)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    for processes, rank in ((1, 0), (2, 0), (2, 1)):
        trainer = SimpleNamespace(world_size=processes, global_rank=rank)
        RunState(FACTS).on_fit_start(trainer, TASK)
    assert seeds == [5, 6]
    assert torch.equal(torch.get_rng_state(), before)


DATA = torch.arange(23)


def loader(processes, process):
    sampler = Shuffled(DATA, processes, process)
    return ResumableLoader(DATA, batch_size=2, sampler=sampler, collate_fn=torch.stack)


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_order_of_every_process_continues(processes):
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
