"""Language modelling: loss, perplexity and memory by their definitions, and the stages of a run."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor, nn

from phantomgrad import Broyden, UnrolledPhantomGradient
from phantomgrad.models import Memory, TransformerLM
from phantomgrad_suite.data import PydocTopics
from phantomgrad_suite.data.text.base import Corpus, LanguageData
from phantomgrad_suite.data.text.streams import TokenBatch
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.tasks import LanguageModelling

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers.*"),
]
ADAM = partial(torch.optim.Adam, lr=0.01)
WORDS = 12


class Bigrams(nn.Module):
    """A learned table of the next word; its memory is the tokens it has seen, and it keeps calls.

    Attributes:
        calls: of each: part of training, length of the memory before, last token in it, options.
    """

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(WORDS, WORDS))
        self.calls: list[tuple[bool, int, int, dict[str, Any]]] = []

    def forward(
        self, tokens: Tensor, targets: Tensor, memory: Memory | None = None, **options: Any
    ) -> tuple[Tensor, Memory]:
        length = 0 if memory is None else memory.states.shape[1]
        last = -1 if memory is None else int(memory.states[0, -1])
        self.calls.append((self.training, length, last, options))
        states = tokens.unsqueeze(2).to(self.table.dtype)
        if memory is not None:
            states = torch.cat([memory.states, states], dim=1)
        losses = -self.table.log_softmax(dim=1)[tokens, targets]
        return losses, Memory(states[:, -4:], states[:, -4:].repeat(1, 1, 3))


class Counting(LanguageData):
    """0, 1, 2, ..., again and again, for each part."""

    evaluation_sets = ("test", "validation")

    def read(self) -> Corpus:
        sizes = {"train": 43, "test": 23, "validation": 31}
        return Corpus({k: torch.arange(n).int() % WORDS for k, n in sizes.items()}, WORDS, "")


def task_of(model: nn.Module, **options: Any) -> LanguageModelling:
    return LanguageModelling(
        model=model, optimizer=ADAM, evaluation_sets=("test", "validation"), **options
    )


def fit(task: LanguageModelling, data: LanguageData, epochs: int = 1, **options: Any) -> Trainer:
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )
    trainer.fit(task, data)
    return trainer


def test_perplexity_is_that_of_all_words() -> None:
    """Not the mean over segments, of which the last is shorter."""
    model = Bigrams()
    with torch.no_grad():
        model.table.normal_()
    task, data = task_of(model), Counting(batch_size=2, test_batch_size=2, segment_length=4)
    task._optimizer = partial(torch.optim.SGD, lr=0.0)
    metrics = fit(task, data).callback_metrics
    losses = -model.table.detach().log_softmax(dim=1)

    def mean(size: int) -> float:
        rows = (torch.arange(size) % WORDS)[: size // 2 * 2].view(2, -1)
        return float(losses[rows[:, :-1], rows[:, 1:]].mean())

    assert metrics["test/perplexity"].item() == pytest.approx(math.exp(mean(23)))
    assert metrics["validation/perplexity"].item() == pytest.approx(math.exp(mean(31)))
    assert metrics["validation/loss"].item() == pytest.approx(mean(31))
    assert metrics["train/loss"].item() == pytest.approx(mean(43))
    assert (task.metric, task.metric_mode) == ("perplexity", "min")


def test_memory_is_carried_between_segments_and_reset_at_the_beginning() -> None:
    """Training and each evaluation set have their own; that of training outlives evaluation."""
    model = Bigrams()
    data = Counting(batch_size=2, test_batch_size=1, segment_length=3, segments_per_epoch=4)
    fit(task_of(model), data, epochs=3)
    train = [(length, last) for training, length, last, _ in model.calls if training]
    # Two streams of 21 tokens: 7 segments, and the eighth is the first again.
    ends = [3 * i - 1 for i in range(1, 7)]
    seen = [(0, -1), *((min(e + 1, 4), e % WORDS) for e in ends)]
    assert train == [*seen, *seen[:5]]
    evaluated = [length for training, length, _, _ in model.calls if not training]
    # 22 and 30 predicted words, in segments of 3.
    assert evaluated == 3 * [0, 3, *[4] * 6, 0, 3, *[4] * 8]


def test_evaluation_may_remember_more() -> None:
    model = Bigrams()
    fit(
        task_of(model, evaluation_memory=9),
        Counting(batch_size=2, segment_length=3, test_batch_size=1),
    )
    told = {(training, options.get("memory_length")) for training, _, _, options in model.calls}
    assert told == {(True, None), (False, 9)}


class LastSeen(Bigrams):
    """Is surer of the right word, the more it remembers."""

    def forward(
        self, tokens: Tensor, targets: Tensor, memory: Memory | None = None, **options: Any
    ) -> tuple[Tensor, Memory]:
        losses, _ = super().forward(tokens, targets, **options)
        kept = 2 if options.get("memory_length") is None else options["memory_length"]
        seen = tokens.unsqueeze(2).to(losses.dtype)
        before = seen[:, :0] if memory is None else memory.states
        states = torch.cat([before, seen], dim=1)[:, -kept:] if kept else seen[:, :0]
        return losses * 0 + 1 / (1 + before.shape[1]), Memory(states, states)


def test_a_second_number_at_another_memory_changes_nothing_else() -> None:
    """Each has a memory of its own; the validation set, which selects, has one number."""
    data = {"batch_size": 2, "segment_length": 3, "test_batch_size": 1}

    def metrics(**options: Any) -> dict[str, float]:
        found = fit(task_of(LastSeen(), **options), Counting(**data), 2).callback_metrics
        return {name: value.item() for name, value in found.items()}

    alone, both = metrics(), metrics(other_memories=[0, 5])
    assert both.keys() - alone.keys() == {"test/perplexity_at_0", "test/perplexity_at_5"}
    assert {name: both[name] for name in alone} == alone
    assert both["test/perplexity_at_0"] == pytest.approx(math.e)
    # Seven segments of three words and one of a single one; the first remembers nothing.
    expected = (3 * 1 + 3 / 4 + 5 * 3 / 6 + 1 / 6) / 22
    assert both["test/perplexity_at_5"] == pytest.approx(math.exp(expected))
    assert both["test/perplexity_at_5"] == pytest.approx(
        metrics(evaluation_memory=5)["test/perplexity"]
    )


def test_what_a_left_out_step_has_remembered_is_forgotten() -> None:
    """Also of the first segment of a text, before which there was nothing, or the end of it."""
    task, words = task_of(Bigrams()), torch.ones(1, 3, dtype=torch.int64)
    first, second = (TokenBatch(words, words, first) for first in (True, False))
    for remembered in ({}, {"train": Memory(torch.zeros(1, 2, 4), torch.zeros(1, 2, 12))}):
        task._memory = dict(remembered)
        start = task.carried(first)
        task._memory["train"] = Memory(torch.full((1, 2, 4), math.nan), torch.zeros(1, 2, 12))
        task.carry(start)
        assert task._memory == {}
    task._memory = dict(remembered)
    start = task.carried(second)
    task._memory["train"] = Memory(torch.full((1, 2, 4), math.nan), torch.zeros(1, 2, 12))
    task.carry(start)
    assert torch.equal(task._memory["train"].states, torch.zeros(1, 2, 4))


def test_a_memory_that_no_stream_fills_is_refused() -> None:
    """Also one at which a second number is wanted."""
    data = Counting(batch_size=2, segment_length=3, test_batch_size=1)
    with pytest.raises(UserError, match=r"task\.other_memories must be less than the 23 tokens"):
        fit(task_of(Bigrams(), other_memories=[23]), data)
    with pytest.raises(ValueError, match="other_memories must be at least 0, got -1"):
        task_of(Bigrams(), other_memories=[-1])


@pytest.mark.parametrize("evaluate_pretrained", [True, False])
def test_pretraining_unrolls_the_cell(evaluate_pretrained: bool) -> None:
    """For its steps, here up to the middle of the second epoch; in evaluation too, by default."""
    model = Bigrams()
    task = task_of(
        model,
        pretraining_steps=6,
        pretraining_layers=3,
        evaluate_pretrained=evaluate_pretrained,
    )
    data = Counting(batch_size=2, segment_length=3, test_batch_size=1, segments_per_epoch=4)
    fit(task, data, epochs=2)
    train = [options["unrolled"] for training, *_, options in model.calls if training]
    evaluated = [options["unrolled"] for training, *_, options in model.calls if not training]
    assert train == [3] * 6 + [0] * 2
    layers = 3 if evaluate_pretrained else 0
    assert evaluated == [layers] * (len(evaluated) // 2) + [0] * (len(evaluated) // 2)


class Saved(Callback):
    """Keeps what a checkpoint holds, in the middle of an epoch."""

    def __init__(self, step: int) -> None:
        self.step, self.content = step, None

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if trainer.global_step == self.step:
            self.content = trainer._checkpoint_connector.dump_checkpoint()


def test_checkpoint_keeps_the_training_memory() -> None:
    data = Counting(batch_size=2, segment_length=3, test_batch_size=1)
    saved = Saved(2)
    fit(task_of(Bigrams()), data, callbacks=[saved])
    assert saved.content is not None
    states, injections = saved.content["memory"]
    assert states.shape == (1, 2, 4, 1)
    assert states[0, :, :, 0].tolist() == [[2, 3, 4, 5], [11, 0, 1, 2]]  # streams of 21 tokens
    assert injections.shape == (1, 2, 4, 3)
    task = task_of(Bigrams())
    task.on_load_checkpoint(saved.content)
    tokens = torch.tensor([[6, 7, 8], [3, 4, 5]])
    task.training_loss(TokenBatch(tokens, tokens, first=False))
    assert task.model.calls[0][1:3] == (4, 5)
    task.training_loss(TokenBatch(tokens, tokens, first=True))
    assert task.model.calls[1][1:3] == (0, -1)


def test_each_process_takes_its_own_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    task = task_of(Bigrams())
    monkeypatch.setattr(LanguageModelling, "global_rank", 1)
    states = torch.arange(2.0).view(2, 1, 1, 1).expand(2, 2, 4, 1)
    task.on_load_checkpoint({"memory": [states, states.repeat(1, 1, 1, 3)]})
    tokens = torch.zeros(2, 3, dtype=torch.long)
    task.training_loss(TokenBatch(tokens, tokens, first=False))
    assert task.model.calls[0][1:3] == (4, 1)


def test_each_process_goes_on_from_its_own_means(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are averaged at the end of the epoch: those of the first one must not count twice."""
    monkeypatch.setattr(LanguageModelling, "all_gather", lambda _, x: torch.stack([x, 10 * x]))
    task, checkpoint = task_of(Bigrams()), dict[str, Any]()
    task.keep("train/loss", torch.tensor(3.0), 2)
    task.on_save_checkpoint(checkpoint)
    for process, expected in enumerate((3.0, 30.0)):
        monkeypatch.setattr(LanguageModelling, "global_rank", process)
        resumed = task_of(Bigrams())
        resumed.on_load_checkpoint(checkpoint)
        assert resumed._means.take() == {"train/loss": expected}


def test_model_learns_to_count() -> None:
    task = task_of(Bigrams())
    task._optimizer = partial(torch.optim.Adam, lr=0.1)
    metrics = fit(task, Counting(batch_size=2, segment_length=5, test_batch_size=1), 40)
    assert metrics.callback_metrics["test/perplexity"] < 1.2


@pytest.mark.usefixtures("float32")
def test_transformer_learns_the_help_texts() -> None:
    """Real words through the real model: far below the perplexity of a guess."""
    data = PydocTopics(batch_size=8, test_batch_size=2, segment_length=24, segments_per_epoch=60)
    solver = Broyden(max_evaluations=8, tol=1e-9)
    model = TransformerLM(
        **data.sizes(),
        solver=solver,
        gradient=UnrolledPhantomGradient(2, 0.8),
        width=16,
        heads=2,
        inner=32,
        cutoffs=(100, 500),
        shrinkage=2,
        memory_length=24,
    )
    task = task_of(model, budget_jitter=2, pretraining_steps=20)
    task._optimizer = partial(torch.optim.Adam, lr=0.01)
    trainer = fit(task, data, gradient_clip_val=0.25, limit_val_batches=8)
    metrics = trainer.callback_metrics
    assert model.deq.solver == solver
    assert metrics["train/loss"] < 6.3 < math.log(data.sizes()["vocabulary"])
    assert metrics["validation/perplexity"] < 400
    assert 6 < metrics["solver/evaluations"] < 8
