"""Deep supervision: which puzzle a row has, what its state is, the loss, and evaluation."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from interruptions import assert_same_run, checkpoint, interrupted
from tasks.fitting import SGD, logged
from torch import nn

from phantomgrad.models import Answer
from phantomgrad_reasoners.puzzles import PuzzleBatch
from phantomgrad_reasoners.reasoning import Reasoning, log_stablemax
from phantomgrad_suite.released import verify

VOCABULARY, CELLS = 5, 3


class Counter(nn.Module):
    """The state counts the segments since its start; ``seen`` are inputs and states."""

    def __init__(self, halts_at=10**6):
        super().__init__()
        self.logits = nn.Parameter(torch.randn(VOCABULARY))
        self.halts_at = halts_at
        self.seen = []

    def start(self, tokens):
        return torch.zeros(len(tokens), 1)

    def forward(self, tokens, state=None):
        state = self.start(tokens) if state is None else state
        self.seen.append((tokens, state))
        logits = F.one_hot(tokens, VOCABULARY).float() * state[:, :, None] + self.logits
        halting = torch.where(state[:, 0] + 1 >= self.halts_at, 1.0, -1.0)
        return Answer(logits, halting, state + 1)


def batch(number, rows=4):
    """Cells of row b are the number of the batch, modulo the vocabulary."""
    tokens = torch.full((rows, CELLS), number % VOCABULARY)
    return PuzzleBatch(tokens, (tokens + torch.arange(CELLS)) % VOCABULARY)


def task(model, **settings):
    return Reasoning(model=model, optimizer=SGD, **{"segments": 3, "averaging": None, **settings})


def steps(task, count, rows=4):
    """The batch that the puzzle of each row is from, and its earlier segments, by step."""
    model = task.model
    for number in range(count):
        task.training_loss(batch(number, rows))
    return [
        list(zip(inputs[:, 0].tolist(), state[:, 0].int().tolist(), strict=True))
        for inputs, state in model.seen
    ]


def test_fixed_segments_replace_rows_in_turn():
    """Rows begin out of phase; from then on each puzzle has three segments from a fresh state."""
    assert steps(task(Counter()), 5) == [
        [(0, 0), (0, 0), (0, 0), (0, 0)],
        [(0, 1), (0, 1), (1, 0), (0, 1)],
        [(0, 2), (2, 0), (1, 1), (0, 2)],
        [(3, 0), (2, 1), (1, 2), (3, 0)],
        [(3, 1), (2, 2), (4, 0), (3, 1)],
    ]


def test_rows_halt_when_the_model_says_so():
    halting = task(Counter(halts_at=2), halting=True, exploration=0.0, segments=4)
    assert steps(halting, 5, rows=1) == [[(0, 0)], [(0, 1)], [(2, 0)], [(2, 1)], [(4, 0)]]
    never = task(Counter(), halting=True, exploration=0.0)
    assert steps(never, 4, rows=1) == [[(0, 0)], [(0, 1)], [(0, 2)], [(3, 0)]]
    fixed = task(Counter(halts_at=1), segments=2)
    assert steps(fixed, 3, rows=1) == [[(0, 0)], [(0, 1)], [(2, 0)]]


def test_exploration_delays_halting():
    """A model that halts at once: by chance in 0.5 of the steps, a minimum of 2 or 3 forbids it."""
    torch.manual_seed(0)
    model = Counter(halts_at=1)
    seen = steps(task(model, halting=True, exploration=0.5), 200, rows=100)
    first, second, third = torch.tensor(seen)[:, :, 1].flatten().bincount().tolist()
    assert second / first == pytest.approx(0.5, abs=0.03)
    assert third / second == pytest.approx(0.25, abs=0.03)


@pytest.mark.parametrize("loss", ["softmax", "stablemax"])
@pytest.mark.parametrize("halting", [False, True])
def test_loss_is_that_of_each_row(loss, halting):
    """Cells without a label have no part in it; a row is right if all others are."""
    model = Counter()
    inputs = torch.tensor([[1, 2, 3], [4, 1, 2], [2, 2, 2]])
    targets = torch.tensor([[1, 2, 3], [-100, -100, 0], [2, -100, 2]])
    reasoning = task(model, loss=loss, halting=halting)
    with torch.no_grad():
        model.logits.copy_(torch.tensor([0.3, -0.2, 0.6, 0.1, 0.2]))
    found, rows = reasoning.training_loss(PuzzleBatch(inputs, targets))
    assert rows == 3
    logs = {"softmax": partial(torch.log_softmax, dim=-1), "stablemax": log_stablemax}[loss]
    log = logs(model.logits.double())
    each = [-(log[1] + log[2] + log[3]) / 3, -log[0], -log[2]]
    expected = torch.stack(each).mean()
    if halting:  # q = -1, and the third row alone is right: the model always answers 2
        logits, right = torch.tensor([-1.0] * 3), torch.tensor([0.0, 0.0, 1.0])
        expected = expected + 0.5 * F.binary_cross_entropy_with_logits(logits, right)
    assert found.item() == pytest.approx(expected.item(), rel=1e-6)
    found.backward()
    assert model.logits.grad is not None


def test_evaluation_takes_all_segments_from_the_start(monkeypatch):
    """Answers are right from the second segment on, where the state outweighs the bias."""
    model = Counter(halts_at=1)
    with torch.no_grad():
        model.logits.copy_(torch.tensor([0.5, 0.0, 0.0, 0.0, 0.0]))
    reasoning = task(model, evaluation_sets=("test", "validation"), evaluated_segments=[1, 5])
    inputs = torch.tensor([[1, 2, 3], [0, 0, 0], [4, 4, 4]])
    targets = torch.tensor([[1, 2, 3], [0, 0, 0], [4, 4, -100]])
    found = logged(reasoning, monkeypatch)
    reasoning.validation_step(PuzzleBatch(inputs[:2], targets[:2]), 0)
    reasoning.validation_step(PuzzleBatch(inputs[2:], targets[2:]), 1)
    reasoning.validation_step(PuzzleBatch(inputs[:1], targets[1:2]), 0, dataloader_idx=1)
    assert [int(state[0]) for _, state in model.seen] == [0, 1, 2, 3, 4] * 3
    reasoning.on_validation_epoch_end()
    assert found["test/exact_accuracy"] == found["test/exact_accuracy_at_5"] == 1
    assert found["test/exact_accuracy_at_1"] == pytest.approx(1 / 3)
    assert (found["test/cell_accuracy"], found["validation/cell_accuracy"]) == (1, 0)
    assert "test/loss" not in found
    assert found["validation/loss"] > 1


RUN = (
    *("model=trm", "solver=steps", "gradient=upg", "gradient.steps=1", "gradient.damping=1.0"),
    *("task=reasoning", "schedule=warmup_cosine", "schedule.warmup=5", "trainer.max_epochs=3"),
    *("model.width=8", "model.n=2", "model.multiple=8", "solver.n=1", "model.noise=0.01"),
    *("model.random_start=true", "optimizer.lr=0.01", "dataset.batch_size=8", "dataset.train=40"),
    *("dataset.test=9", "dataset.validation=9", "task.segments=3"),
)  # fmt: skip


def test_resumed_run_is_the_uninterrupted_one(workplace):
    """Carry, augmentation, noise and averaged weights are equal bit for bit."""
    here = (*RUN, "dataset=sudoku4", "runtime.checkpoint.every_minutes=0")
    here += ("task.halting=true", "task.exploration=0.5", "task.averaging=0.9")
    whole = workplace.train(*here, "runtime.paths.runs=whole")
    folder = interrupted(workplace, 11, *here, unit="step")
    assert len(checkpoint(folder)["carry"][0][3]) == 8
    assert workplace.train(*here) == folder
    assert_same_run(folder, whole)
    assert verify([str(folder)])


def test_spectral_radius_is_that_of_the_whole_recursion(workplace):
    """Also in a run whose gradient records its last two steps alone."""
    here = (*RUN, "dataset=sudoku4", "runtime.callbacks.spectrum.every_n_epochs=1")
    here += ("trainer.max_epochs=1", "runtime.checkpoint.every_n_epochs=1")
    first = []
    for recorded in ("2", "null"):
        folder = workplace.train(*here, f"model.recorded={recorded}")
        first += checkpoint(folder)["callbacks"]["History"]["curves"]["spectral_radius"]
    assert first[0] == first[1] > 0
