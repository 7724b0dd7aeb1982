"""Test-time scaling of a trained reasoner: more segments, several starts, and its residual."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from hydra.utils import get_class
from omegaconf import OmegaConf
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from phantomgrad.checks import check_at_least, check_several
from phantomgrad.models.recursive.network import truncated_normal_
from phantomgrad_suite.data import PuzzleBatch, PuzzleData, Sudoku
from phantomgrad_suite.data.puzzles.base import IGNORED
from phantomgrad_suite.jobs.build import build_data, build_task
from phantomgrad_suite.jobs.environment import set_float32_precision
from phantomgrad_suite.jobs.trained import read_run, read_weights
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.records import Check, Record
from phantomgrad_suite.studies.base import Findings, Study, progress, rounded
from phantomgrad_suite.tasks import Reasoning

RESIDUALS = ("logits", "state")
DECADES = (-4, 2)  # of the histograms of residuals, in bins of a tenth
_LAST = 3  # changes that a residual is the mean of, as in EqR
_BLANK = 1  # token of Sudoku
_TOLERANCE = 0.005  # of an accuracy; processors differ in a puzzle on the edge
_NORMAL = 1.96  # of a two-sided interval of 95 %


class Trace(NamedTuple):
    """What a model does with B puzzles, segment by segment."""

    answers: Tensor  # tokens, (segments, B, S)
    changes: Tensor  # of logits and of state from segment to segment, (2, segments - 1, B)


@dataclass(frozen=True, kw_only=True)
class Scaling(Study):
    r"""A finished run of ``Reasoning``, evaluated with more computation than in training.

    Depth: accuracy after each segment, to ``depth`` times the N of training. Breadth: each puzzle
    is answered from ``starts`` states, the first that of the plain evaluation. A model trained with
    random starts draws the others itself; one with saved vectors gets other vectors of the same
    distribution. Noise is the model's. One answer is chosen, by a majority of whole answers (the
    earliest of equals), or as the one with the smallest residual, the mean over the last three of

    .. math:: \frac{1}{S} \sum_{i \le S} \|a_i^{(t+1)} - a_i^{(t)}\|

    over segments t, with the logits of cell i as :math:`a_i` (the rule in EqR's code), or its state
    (y, z) (that of the paper, arXiv:2605.21488). Of Sudoku, the first test set is answered once
    more with all but ``missing`` blank cells filled in.
    """

    run: str  # the folder of the run in ``runs``
    depth: int = 4
    starts: int = 8
    puzzles: int = 256  # of each test set, or more if the run has tested on more
    missing: Sequence[int] = (0, 1, 2, 4, 8)
    runs: str = "runs"
    data: str = "data"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_several("missing", self.missing)
        for cells in self.missing:
            check_at_least("missing", cells, 0)

    def measure(self, seed: int, device: torch.device) -> Findings:
        folder = Path(self.runs, self.run)
        record = read_run(folder)
        config: Any = OmegaConf.create(record.config)
        if not issubclass(kind := get_class(config.task._target_), Reasoning):
            raise UserError(f"run must be a run of Reasoning, got {self.run} of {kind.__name__}")
        tested, n = config.dataset.test, int(config.task.segments)
        config.dataset.test = max(tested, self.puzzles)
        if config.dataset.get("side") == 6:  # other sizes have too few known grids, or puzzles
            config.dataset.known_grids = config.dataset.test
        config.runtime.dataset.root = self.data
        set_float32_precision(config.matmul_precision)
        data: Any = build_data(config)
        task = build_task(config, data)
        name = "selected" if "selected" in record.weights else "last"
        task.evaluated.load_state_dict(read_weights(folder, record.weights[name]))
        model: Any = task.evaluated.to(device).eval()
        torch.manual_seed(seed)
        sets, checks = [], list[Check]()
        for part in (part for part in data.evaluation_sets if part.startswith("test")):
            batches = batches_of(data, part, device)
            traces = [trace(model, batches, n * self.depth)]
            solved = solved_by(traces[0].answers, batches)
            if part == "test" and not (model.noise or model.random_start):
                checks = [_agreement(solved[n - 1, :tested], record, record.weights[name])]
            for _ in progress(range(1, self.starts)):
                traces.append(trace(model, batches, n * self.depth, random=True))
            sets.append({"name": part, **along(solved), **self._wide(traces, batches, n)})
        numbers = {
            **{"row": record.row, "instance": record.instance, "label": record.label},
            **{"weights": record.weights[name], "segments": n, "sets": sets},
            "random_start": model.random_start,
            "nearly": self._nearly(model, data, device, n) if isinstance(data, Sudoku) else [],
        }
        return Findings(numbers, checks)

    def _wide(
        self, traces: Sequence[Trace], batches: Sequence[PuzzleBatch], n: int
    ) -> dict[str, Any]:
        """Return what several starts and the residual of the first tell, at multiples of N."""
        breadth, residuals = [], []
        for segments in range(n, n * self.depth + 1, n):
            answers = torch.stack([t.answers[segments - 1] for t in traces])
            found = torch.stack([residual(t.changes, segments) for t in traces], dim=1)
            solved = solved_by(answers, batches)
            counts = sorted({self.starts, *(2**i for i in range(self.starts.bit_length()))})
            for count in counts:
                rates = selected(answers[:count], found[:, :count], solved[:count])
                breadth.append({"segments": segments, "starts": count, **rates})
            of_first = {
                kind: of_residual(values, solved[0])
                for kind, values in zip(RESIDUALS, found[:, 0], strict=True)
            }
            residuals.append({"segments": segments, **of_first})
        return {"breadth": breadth, "residuals": residuals}

    def _nearly(self, model: Any, data: Any, device: torch.device, n: int) -> list[dict[str, Any]]:
        batches, rows = batches_of(data, "test", device), []
        keys = [torch.rand(batch.inputs.shape).to(device) for batch in batches]
        for cells in self.missing:
            pairs = zip(batches, keys, strict=True)
            filled = [filled_in(batch, cells, key) for batch, key in pairs]
            answers = trace(model, filled, n * self.depth).answers
            rows.append({"missing": cells, **along(solved_by(answers, batches))})
        return rows


def _agreement(solved: Tensor, record: Record, kept: dict[str, Any]) -> Check:
    recorded = record.curves["test/exact_accuracy"][kept["epoch"] - 1]
    difference = abs(float(solved.double().mean()) - recorded)
    return Check.below("plain accuracy less that of the run's record", difference, _TOLERANCE)


def batches_of(data: PuzzleData, part: str, device: torch.device) -> list[PuzzleBatch]:
    """Return the batches that the run itself evaluates."""
    return [PuzzleBatch(*(t.to(device) for t in batch)) for batch in data.loader(part)]


@torch.no_grad()
def trace(
    model: Any, batches: Iterable[PuzzleBatch], segments: int, *, random: bool = False
) -> Trace:
    """Return what a model answers, from its own start or from a random one."""
    parts = []
    for tokens, _ in batches:
        state, answers, changes = random_start(model, tokens) if random else None, [], []
        before: tuple[Tensor, ...] = ()
        for _ in range(segments):
            answer = model(tokens, state)
            state = answer.state
            now = answer.logits, torch.cat(tree_leaves(state), dim=-1)
            if before:
                moves = [(a - b).norm(dim=-1) for a, b in zip(now, before, strict=True)]
                changes.append(torch.stack([move.mean(dim=-1) for move in moves]))
            answers.append(answer.logits.argmax(dim=-1))
            before = now
        parts.append((torch.stack(answers), torch.stack(changes, dim=1)))
    return Trace(*(torch.cat(kind, dim=i) for i, kind in enumerate(zip(*parts, strict=True), 1)))


def random_start(model: Any, tokens: Tensor) -> Any:
    """Return a start as the model draws it, or else vectors like the saved ones, by puzzle."""
    state = model.start(tokens)
    if model.random_start:
        return state
    return tree_map(
        lambda s: truncated_normal_(torch.empty_like(s[:, :1]), 1.0).expand_as(s), state
    )


def solved_by(answers: Tensor, batches: Sequence[PuzzleBatch]) -> Tensor:
    """Return which ``answers``, ``(..., B, S)``, are right in every cell with a label."""
    targets = torch.cat([batch.targets for batch in batches])
    return ((answers == targets) | (targets == IGNORED)).all(dim=-1)


def residual(changes: Tensor, segments: int) -> Tensor:
    """Return the residuals of logits and of state after ``segments``, ``(2, B)``."""
    return changes[:, max(0, segments - 1 - _LAST) : segments - 1].mean(dim=1)


def majority(answers: Tensor) -> Tensor:
    """Return which of R answers, ``(R, B, S)``, most are equal to: the earliest of equals."""
    r, b, _ = answers.shape
    _, numbers = torch.unique(answers.flatten(0, 1), dim=0, return_inverse=True)
    number: Tensor = numbers.view(r, b)
    return torch.eq(number[:, None], number).sum(dim=1).argmax(dim=0)


def selected(answers: Tensor, residuals: Tensor, solved: Tensor) -> dict[str, float]:
    """Return the accuracy of each rule.

    Args:
        answers: ``(R, B, S)``.
        residuals: of logits and of state, ``(2, R, B)``.
        solved: which answers are right, ``(R, B)``.
    """
    chosen = {"vote": majority(answers)}
    chosen |= dict(zip(RESIDUALS, residuals.argmin(dim=1), strict=True))
    right = {name: solved.gather(0, index[None]) for name, index in chosen.items()}
    found = {"single": solved, **right, "any": solved.any(dim=0)}
    return {name: _share(values) for name, values in found.items()}


def along(solved: Tensor) -> dict[str, Any]:
    """Return the accuracy by segment of ``(segments, B)``, and the share that lost a solution."""
    lost = solved.int().cummax(dim=0).values.bool() & ~solved
    rates = [_share(rows) for rows in solved]
    return {"n": solved.shape[1], "accuracy": rates, "lost": _share(lost.any(dim=0))}


def of_residual(values: Tensor, solved: Tensor) -> dict[str, Any]:
    """Return how residuals are distributed, and how they tell errors from solutions."""
    low, high = DECADES
    logs = values.double().log10().clamp(low, high)
    groups = {"solved": solved, "unsolved": ~solved}
    counts = {
        name: torch.histc(logs[where].cpu(), 10 * (high - low), low, high).int().tolist()
        for name, where in groups.items()
    }
    return {**counts, "auroc": auroc(values[~solved].double(), values[solved].double())}


def auroc(positive: Tensor, negative: Tensor) -> list[float] | None:
    """Return the probability that a positive exceeds a negative, and DeLong's 95 % interval.

    ``None`` if there are fewer than two of either.
    """
    if min(len(positive), len(negative)) < 2:
        return None
    wins = (positive[:, None] - negative).sign().add(1).div(2)  # ties count a half
    variance = wins.mean(dim=1).var() / len(positive) + wins.mean(dim=0).var() / len(negative)
    area, error = float(wins.mean()), _NORMAL * float(variance.sqrt())
    return [rounded(x) for x in (area, max(0.0, area - error), min(1.0, area + error))]


def filled_in(batch: PuzzleBatch, missing: int, keys: Tensor) -> PuzzleBatch:
    """Fill in all blank cells but ``missing``, those with the smallest keys."""
    blank = batch.inputs == _BLANK
    ranks = torch.where(blank, keys, 2).argsort(dim=1).argsort(dim=1)
    kept = blank & (ranks < missing)
    return batch._replace(inputs=torch.where(kept, batch.inputs, batch.targets))


def _share(values: Tensor) -> float:
    return rounded(values.double().mean())
