"""The looped language model: what a position sees, loops after loops, and random depth in a run."""

import pytest
import torch
from interruptions import assert_same_run, checkpoint, interrupted
from tasks.fitting import SGD, logged

import phantomgrad as pg
from phantomgrad_reasoners.looped import LoopedLanguageModelling, LoopedTransformer, token_losses
from phantomgrad_suite.data.text.streams import TokenBatch

VOCABULARY = 7


def looped(loops=3, **settings):
    settings = {"width": 8, "heads": 2, "multiple": 4, **settings}
    return LoopedTransformer(VOCABULARY, pg.Steps(loops), pg.BackpropThroughSolver(), **settings)


def tokens(rows=2, length=5):
    return torch.randint(VOCABULARY, (rows, length))


def test_a_position_sees_those_before_it():
    model, words = looped(), tokens()
    before = model(words).logits
    words[:, 3] = (words[:, 3] + 1) % VOCABULARY
    after = model(words).logits
    assert torch.equal(before[:, :3], after[:, :3])
    assert (before[:, 3:] != after[:, 3:]).any(dim=-1).all()


def test_loops_from_a_state_are_further_loops():
    model, words = looped(3), tokens()
    once = model(words)
    twice = model(words, once.state)
    model.deq.solver = pg.Steps(6)
    torch.testing.assert_close(model(words), twice)
    assert not torch.equal(once.logits, twice.logits)
    assert not once.state.requires_grad


def test_every_parameter_learns():
    model, words = looped(prelude=2, loop=2, coda=2), tokens()
    token_losses(model(words).logits, words).sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in model.parameters())


def test_perplexity_by_the_number_of_loops(monkeypatch):
    model = looped(2)
    task = LoopedLanguageModelling(model=model, optimizer=SGD, evaluated_segments=[3])
    found = logged(task, monkeypatch)
    batches = [TokenBatch(tokens(), tokens(), first=True) for _ in range(2)]
    with torch.no_grad():
        for batch in batches:
            task.validation_step(batch, 0)
    task.on_validation_epoch_end()
    for name, loops in (("test/perplexity", 2), ("test/perplexity_at_3", 6)):
        model.deq.solver = pg.Steps(loops)
        losses = torch.stack([token_losses(model(b.tokens).logits, b.targets) for b in batches])
        assert float(found[name]) == pytest.approx(losses.mean().exp().item(), rel=1e-5)


RUN = (
    *("experiment=looped/words_s3_random", "model.width=8", "model.heads=2", "model.multiple=4"),
    *("dataset.batch_size=8", "dataset.train=40", "dataset.test=9", "dataset.validation=9"),
    *("dataset.test_lengths=[9]", "trainer.max_epochs=3", "schedule.warmup=2"),
    *("task.evaluated_segments=[2]", "runtime.checkpoint.every_minutes=0"),
)  # fmt: skip


def test_a_resumed_run_draws_the_depths_of_the_uninterrupted_one(workplace, whole_runs):
    whole = whole_runs.train(workplace, *RUN)
    folder = interrupted(workplace, 7, *RUN, unit="step")
    assert workplace.train(*RUN) == folder
    assert_same_run(folder, whole)
    curves = checkpoint(folder)["callbacks"]["History"]["curves"]
    assert len({*curves["solver/evaluations"]}) > 1  # means over the steps of an epoch
    assert all(distance > 0 for distance in curves["solver/distance"])


@pytest.mark.parametrize(("name", "value"), [("coda", 0), ("heads", 3)])
def test_settings_that_make_no_model(name, value):
    with pytest.raises(ValueError, match=name):
        looped(**{name: value})
