"""Random numbers and the order of the data: restored, and shared by processes."""

import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from phantomgrad_suite.checkpoint.loaders import ResumableLoader, Shuffled
from phantomgrad_suite.checkpoint.state import RunState
from phantomgrad_suite.runs.errors import UserError

HARDWARE = dict.fromkeys(("git", "processor", "threads", "accelerator"))
FACTS = {"environment": HARDWARE, "started": "now", "config_hash": "c0ffee"}
FACTS |= {"data": "sha256:1", "instance": "seed0"}
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


@pytest.mark.parametrize("key", ["config_hash", "data", "instance"])
def test_checkpoint_of_another_run_is_refused(saved, key):
    """Of a changed row, of other data, of another seed."""
    with pytest.raises(UserError, match=rf"of another run \(its {key} is .* move it away"):
        RunState({**FACTS, key: "other"}).resume(saved)


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


def test_processes_share_the_order_of_each_epoch():
    """23 samples have 24 places, and another order in the next epoch."""
    parts = []
    for process in range(3):
        torch.manual_seed(0)
        sampler = Shuffled(range(23), 3, process)
        first = [*sampler]
        sampler.set_epoch(1)
        assert [*sampler] != first
        parts += first
    assert (len(parts), {*parts}) == (24, {*range(23)})
