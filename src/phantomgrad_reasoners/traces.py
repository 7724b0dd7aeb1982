"""What a trained reasoner does with puzzles, segment by segment, and what studies make of it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from hydra.utils import get_class
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from phantomgrad.models.recursive import truncated_normal_
from phantomgrad_reasoners.puzzles import IGNORED, PuzzleBatch
from phantomgrad_reasoners.reasoning import Reasoning
from phantomgrad_suite.jobs.build import build_data, build_task
from phantomgrad_suite.jobs.environment import set_float32_precision
from phantomgrad_suite.jobs.trained import configuration, read_run, read_weights
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.records import Record
from phantomgrad_suite.studies.base import Study, progress, rounded

T = TypeVar("T")
Row = dict[str, Any]
"""A line of numbers: what it is of, and what was measured."""

_NORMAL = 1.96  # of a two-sided interval of 95 %


class Trace(NamedTuple):
    """What a model does with B puzzles of S cells in T segments."""

    answers: Tensor  # tokens, (T, B, S)
    solved: Tensor  # (T, B)
    changes: Tensor  # of logits and of state in each segment, zero in the first, (T, B, 2)
    halting: Tensor  # logits, (T, B)
    end: Tensor  # the last state, (1, B, S, D)


@torch.no_grad()
def trace(
    model: Any, batches: Iterable[PuzzleBatch], segments: int, *, random: bool = False
) -> Trace:
    """Return what a model does with puzzles, from its own start or from a random one."""
    parts = []
    for tokens, targets in batches:
        state, steps = random_start(model, tokens) if random else None, []
        now: tuple[Tensor, ...] = ()
        for _ in range(segments):
            answer, before = model(tokens, state), now
            state, found = answer.state, answer.logits.argmax(dim=-1)
            now = answer.logits, torch.cat(tree_leaves(state), dim=-1)
            pairs = zip(now, before or now, strict=True)
            changes = torch.stack([(a - b).norm(dim=-1).mean(dim=-1) for a, b in pairs], dim=-1)
            right = (found == targets) | (targets == IGNORED)
            steps.append((found, right.all(dim=-1), changes, answer.halting))
        answers, solved, moved, halting = map(torch.stack, zip(*steps, strict=True))
        parts.append(Trace(answers, solved, moved, halting, now[1][None]))
    return Trace(*(torch.cat(each, dim=1) for each in zip(*parts, strict=True)))


def random_start(model: Any, tokens: Tensor) -> Any:
    """Return a start as the model draws it, or else vectors like the saved ones, by puzzle."""
    state = model.start(tokens)
    if model.random_start:
        return state
    return tree_map(
        lambda s: truncated_normal_(torch.empty_like(s[:, :1]), 1.0).expand_as(s), state
    )


class Trained(NamedTuple):
    """A finished run of ``Reasoning``."""

    record: Record
    model: Any  # in evaluation mode
    data: Any
    device: torch.device
    facts: dict[str, Any]  # of the run, for the numbers of a study

    @property
    def tests(self) -> list[str]:
        """The names of the test sets."""
        return [part for part in self.data.evaluation_sets if part.startswith("test")]

    def traces(self, part: str, segments: int, starts: int = 1) -> list[Trace]:
        """Return what the model does with a part from its own start, then from random ones."""
        loader = self.data.loader(part)
        batches = [PuzzleBatch(*(x.to(self.device) for x in batch)) for batch in loader]
        numbers = progress(range(starts))
        return [trace(self.model, batches, segments, random=start > 0) for start in numbers]


@dataclass(frozen=True, kw_only=True)
class StudyOfRun(Study):
    """A study of a finished run of ``Reasoning``, evaluated with more computation."""

    run: str  # the folder of the run in ``runs``
    depth: int = 4  # times the segments of training
    starts: int = 8
    puzzles: int = 256  # of each test set, or more if the run has tested on more
    runs: str = "runs"
    data: str = "data"

    def trained(self, seed: int, device: torch.device) -> Trained:
        """Return the run with the weights that it has selected."""
        folder = Path(self.runs, self.run)
        record = read_run(folder)
        config = configuration(record)
        if not issubclass(kind := get_class(config.task._target_), Reasoning):
            raise UserError(f"run must be a run of Reasoning, got {self.run} of {kind.__name__}")
        config.dataset.test = max(config.dataset.test, self.puzzles)
        if config.dataset.get("side") == 6:  # other sizes have too few known grids, or puzzles
            config.dataset.known_grids = config.dataset.test
        config.runtime.dataset.root = self.data
        set_float32_precision(config.matmul_precision)
        data: Any = build_data(config)
        task = build_task(config, data)
        kept = record.weights.get("selected") or record.weights["last"]
        task.evaluated.load_state_dict(read_weights(folder, kept))
        model: Any = task.evaluated.to(device).eval()
        torch.manual_seed(seed)
        facts = {
            "row": record.row,
            "instance": record.instance,
            "label": record.label,
            "weights": kept,
            "segments": int(config.task.segments),
        }
        return Trained(record, model, data, device, facts)


def by_set(found: Mapping[str, T], rows: Callable[[T], Iterable[Row]]) -> list[Row]:
    """Return the rows of each test set, with its name as ``set``."""
    return [{"set": name, **row} for name, each in found.items() for row in rows(each)]


def auroc(positive: Tensor, negative: Tensor) -> Row:
    """Return the probability that a positive exceeds a negative, and DeLong's 95 % interval.

    ``None`` if there are fewer than two of either.
    """
    names = ("auroc", "low", "high")
    if min(len(positive), len(negative)) < 2:
        return dict.fromkeys(names)
    wins = (positive[:, None] - negative).sign().add(1).div(2)  # ties count a half
    variance = wins.mean(dim=1).var() / len(positive) + wins.mean(dim=0).var() / len(negative)
    area, error = float(wins.mean()), _NORMAL * float(variance.sqrt())
    values = area, max(0.0, area - error), min(1.0, area + error)
    return dict(zip(names, map(rounded, values), strict=True))


def share(values: Tensor) -> float:
    """Return the mean of truth values."""
    return rounded(values.double().mean())
