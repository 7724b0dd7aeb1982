"""Language modelling: perplexity, memory and pretraining by their definitions."""

import math
from functools import partial

import pytest
import torch
from tasks.fitting import QUIET, fit
from torch import nn

from phantomgrad import Steps
from phantomgrad.models import Memory
from phantomgrad_suite.data import Corpus, LanguageData
from phantomgrad_suite.tasks import LanguageModelling

pytestmark = QUIET
WORDS = 12


class Bigrams(nn.Module):
    """A learned table of the next word, whose memory holds the tokens before.

    ``calls`` keeps, of each call: training mode, length of the memory, its last token, options.
    """

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(WORDS, WORDS))
        self.calls = []

    def forward(self, tokens, targets, memory=None, **options):
        length = 0 if memory is None else memory.states.shape[1]
        last = -1 if memory is None else int(memory.states[0, -1])
        self.calls.append((self.training, length, last, options))
        states = tokens.unsqueeze(2).to(self.table.dtype)
        if memory is not None:
            states = torch.cat([memory.states, states], dim=1)
        losses = -self.table.log_softmax(dim=1)[tokens, targets]
        return losses, Memory(states[:, -4:], states[:, -4:].repeat(1, 1, 3))


class Counting(LanguageData):
    """The words 0, 1, ..., 11, 0, ... in each part."""

    evaluation_sets = ("test", "validation")

    @property
    def corpus(self):
        sizes = {"train": 43, "test": 23, "validation": 31}
        return Corpus({k: torch.arange(n).int() % WORDS for k, n in sizes.items()}, WORDS, "")


def task_of(model, lr=0.01, **options):
    optimizer = partial(torch.optim.Adam, lr=lr)
    return LanguageModelling(
        model=model, optimizer=optimizer, evaluation_sets=("test", "validation"), **options
    )


def counting(length=3, **options):
    return Counting(**{"batch_size": 2, "test_batch_size": 1, "segment_length": length, **options})


def test_perplexity_is_that_of_all_words():
    """The mean over segments would be another one, since the last segment is shorter."""
    model = Bigrams()
    with torch.no_grad():
        model.table.normal_()
    task = task_of(model, lr=0.0)
    metrics = fit(task, counting(4, test_batch_size=2)).callback_metrics
    losses = -model.table.detach().log_softmax(dim=1)

    def mean(size):
        rows = (torch.arange(size) % WORDS)[: size // 2 * 2].view(2, -1)
        return float(losses[rows[:, :-1], rows[:, 1:]].mean())

    assert metrics["test/perplexity"].item() == pytest.approx(math.exp(mean(23)))
    assert metrics["validation/perplexity"].item() == pytest.approx(math.exp(mean(31)))
    assert metrics["validation/loss"].item() == pytest.approx(mean(31))
    assert metrics["train/loss"].item() == pytest.approx(mean(43))
    assert (task.metric, task.metric_mode) == ("perplexity", "min")


@pytest.mark.filterwarnings("error")
def test_a_word_without_a_finite_loss_is_not_left_out():
    model = Bigrams()
    with torch.no_grad():
        model.table[5] = math.nan
    metrics = fit(task_of(model, lr=0.0), counting()).callback_metrics
    assert all(metrics[name].isnan() for name in ("test/perplexity", "validation/loss"))


def test_memory_is_passed_between_segments_and_reset_at_the_beginning():
    """Training and each evaluation set have memories of their own."""
    model = Bigrams()
    fit(task_of(model), counting(segments_per_epoch=4), epochs=3)
    train = [(length, last) for training, length, last, _ in model.calls if training]
    # Two streams of 21 tokens: 7 segments, and the eighth is the first again.
    ends = [3 * i - 1 for i in range(1, 7)]
    seen = [(0, -1), *((min(e + 1, 4), e % WORDS) for e in ends)]
    assert train == [*seen, *seen[:5]]
    evaluated = [length for training, length, _, _ in model.calls if not training]
    # 22 and 30 predicted words, in segments of 3.
    assert evaluated == 3 * [0, 3, *[4] * 6, 0, 3, *[4] * 8]


def test_test_set_is_evaluated_at_further_memory_lengths():
    """The validation set, which selects the epoch, is not."""
    model = Bigrams()
    task = task_of(model, evaluation_memory=7, other_memories=[0, 5])
    metrics = fit(task, counting()).callback_metrics
    further = {name for name in metrics if "_at_" in name}
    assert further == {"test/perplexity_at_0", "test/perplexity_at_5"}
    lengths = [options["memory_length"] for training, *_, options in model.calls if not training]
    assert lengths == 8 * [7, 0, 5] + 10 * [7]


def test_test_set_is_evaluated_with_further_solvers():
    model, none = Bigrams(), Steps(0)
    metrics = fit(task_of(model, other_solvers={"without": none}), counting()).callback_metrics
    assert metrics["test/perplexity_without"] == metrics["test/perplexity"]  # of this model
    solvers = [options.get("solver") for training, *_, options in model.calls if not training]
    assert solvers == 8 * [None, none] + 10 * [None]


@pytest.mark.parametrize("evaluate_pretrained", [True, False])
def test_pretraining_unrolls_the_cell(evaluate_pretrained):
    """It lasts to the middle of the second epoch, and by default evaluation unrolls as well."""
    model, options = Bigrams(), {"pretraining_steps": 6, "pretraining_layers": 3}
    task = task_of(model, evaluate_pretrained=evaluate_pretrained, **options)
    fit(task, counting(segments_per_epoch=4), epochs=2)
    train = [options["unrolled"] for training, *_, options in model.calls if training]
    evaluated = [options["unrolled"] for training, *_, options in model.calls if not training]
    assert train == [3] * 6 + [0] * 2
    layers = 3 if evaluate_pretrained else 0
    assert evaluated == [layers] * (len(evaluated) // 2) + [0] * (len(evaluated) // 2)
