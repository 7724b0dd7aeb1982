"""Language-model runs through the real entry: interrupted, resumed, and in two processes."""

import pytest
import torch
from interruptions import assert_same_run, checkpoint, interrupted
from training import SMALL_TRANSFORMER, finish_two, needs_gloo

from phantomgrad_suite.runs.records import read_record

MODEL = (
    *SMALL_TRANSFORMER,
    *("model.memory_length=12", "dataset.batch_size=3"),
    *("dataset.segment_length=9", "dataset.test_batch_size=2", "++trainer.limit_val_batches=4"),
    *("solver.max_evaluations=5", "adjoint.max_evaluations=5", "schedule.warmup=3"),
)


# In the place of four GPUs.
ALONE = ("trainer=default", "trainer.devices=1", "task.other_memories=[]")


def run_of(text_root, row, *overrides):
    """A row on small texts, three epochs of seven segments each."""
    return (
        f"experiment={row}",
        *(f"runtime.dataset.root={text_root}", *MODEL, *ALONE),
        *("dataset.segments_per_epoch=7", "trainer.max_epochs=3", *overrides),
    )


# With everything that is drawn: masks, jitter, penalty. A pass over the text has 115 segments.
JR = (
    *("table3/wikitext103_preln_jr_upg_14", "task.pretraining_steps=4"),
    *("task.jacobian.increase=0.1", "task.jacobian.every=5"),
)


@pytest.mark.parametrize(("unit", "at"), [("epoch", 2), ("step", 3)])
def test_resumed_run_is_the_uninterrupted_one(workplace, whole_runs, text_root, unit, at):
    """Memory, position and weights are equal after an interruption between or within epochs."""
    here = run_of(text_root, *JR, "runtime.checkpoint.every_n_epochs=1")
    whole = whole_runs.train(workplace, *here)
    here += (f"runtime.checkpoint.every_minutes={'0' if unit == 'step' else 'null'}",)
    folder = interrupted(workplace, at, *here, unit=unit)
    ((states, _),) = checkpoint(folder)["memory"]
    assert states.shape == (3, 12, 8)
    assert workplace.train(*here) == folder
    assert_same_run(folder, whole)
    (a,), (b,) = (checkpoint(path)["memory"] for path in (folder, whole))
    assert all(torch.equal(mine, yours) for mine, yours in zip(a, b, strict=True))


# Nothing that is drawn changes anything: no dropout, no jitter, a penalty of no weight.
PLAIN = (
    *("trainer.max_epochs=1", "runtime.checkpoint.every_n_epochs=1", "task.pretraining_steps=0"),
    *("model.dropout=0", "model.attention_dropout=0", "task.budget_jitter=0"),
    *("task.jacobian.frequency=0.5", "task.jacobian.weight=0", "task.jacobian.increase=0"),
)
TWO = ("trainer=ddp", "runtime.trainer.accelerator=cpu", "trainer.devices=2")


@needs_gloo
def test_two_processes_are_one_with_twice_the_streams(workplace, text_root):
    """Losses, perplexities, memories and the steps with a penalty are equal."""
    here = run_of(text_root, JR[0], *PLAIN)
    out = finish_two(workplace.path, *here, *TWO, "runtime.paths.runs=two")
    assert "sync_dist" not in out
    assert "deprecated" not in out
    (path,) = workplace.path.glob("two/**/record.json")
    one = workplace.train(*here, "dataset.batch_size=6")
    ours, alone = read_record(path).curves, read_record(one / "record.json").curves
    for name in ("train/loss", "test/perplexity", "validation/perplexity", "validation/loss"):
        assert ours[name] == pytest.approx(alone[name], rel=1e-4), name
    assert ours["train/jacobian"]
    both, (whole,) = checkpoint(path.parent)["memory"], checkpoint(one)["memory"]
    for parts, part in zip(zip(*both, strict=True), whole, strict=True):
        assert [own.shape[:2] for own in parts] == [(3, 12), (3, 12)]
        torch.testing.assert_close(torch.cat(parts), part, rtol=0.01, atol=1e-3)
