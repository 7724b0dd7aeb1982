"""Test-time scaling of a trained reasoner: more segments, several starts, and its residual."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from hydra.utils import get_class
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from phantomgrad.checks import check_at_least, check_several
from phantomgrad.models.recursive import truncated_normal_
from phantomgrad_reasoners.puzzles import IGNORED, PuzzleBatch
from phantomgrad_reasoners.reasoning import Reasoning
from phantomgrad_reasoners.sudoku import Sudoku
from phantomgrad_suite.jobs.build import build_data, build_task
from phantomgrad_suite.jobs.environment import set_float32_precision
from phantomgrad_suite.jobs.trained import configuration, read_run, read_weights
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.records import Check, Record
from phantomgrad_suite.studies.base import Findings, Study, progress, rounded

RESIDUALS = ("logits", "state")
DECADES = (-4, 2)  # of the histograms of residuals, in bins of a tenth
_NORMAL = 1.96  # of a two-sided interval of 95 %
_LAST = 3  # changes that a residual is the mean of, as in EqR
_BLANK = 1  # token of Sudoku
_TOLERANCE = 0.005  # of an accuracy; processors differ in a puzzle on the edge


def majority(answers: Tensor) -> Tensor:
    """Return which of R answers, ``(R, B, S)``, most are equal to: the earliest of equals."""
    r, b, _ = answers.shape
    _, numbers = torch.unique(answers.flatten(0, 1), dim=0, return_inverse=True)
    number: Tensor = numbers.view(r, b)
    return torch.eq(number[:, None], number).sum(dim=1).argmax(dim=0)


def selected(answers: Tensor, solved: Tensor, residuals: Tensor) -> dict[str, float]:
    """Return the accuracy of each rule.

    Args:
        answers: ``(R, B, S)``.
        solved: which answers are right, ``(R, B)``.
        residuals: of logits and of state, ``(R, B, 2)``.
    """
    chosen = {"vote": majority(answers)}
    chosen |= dict(zip(RESIDUALS, residuals.argmin(dim=0).T, strict=True))
    right = {name: solved.gather(0, index[None]) for name, index in chosen.items()}
    found = {"single": solved, **right, "any": solved.any(dim=0)}
    return {name: share(values) for name, values in found.items()}


def along(solved: Tensor) -> dict[str, Any]:
    """Return the accuracy by segment of ``(segments, B)``, and the share that lost a solution."""
    lost = solved.int().cummax(dim=0).values.bool() & ~solved
    rates = [share(rows) for rows in solved]
    return {"n": solved.shape[1], "accuracy": rates, "lost": share(lost.any(dim=0))}


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


def share(values: Tensor) -> float:
    """Return the mean of truth values."""
    return rounded(values.double().mean())


class Trace(NamedTuple):
    """What a model does with B puzzles of S cells in T segments."""

    answers: Tensor  # tokens, (T, B, S)
    solved: Tensor  # (T, B)
    changes: Tensor  # of logits and of state in each segment, zero in the first, (T, B, 2)
    halting: Tensor  # logits, (T, B)
    end: Tensor  # the last state, (1, B, S, D)

    def after(self, segments: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return answers, which of them are right, and residuals of R traces that are stacked."""
        last = self.changes[:, max(1, segments - _LAST) : segments]
        return self.answers[:, segments - 1], self.solved[:, segments - 1], last.mean(dim=1)


class Trained(NamedTuple):
    """A finished run of ``Reasoning``."""

    record: Record
    model: Any  # in evaluation mode
    data: Any
    facts: dict[str, Any]  # of the run, for the numbers of a study

    def batches(self, part: str, device: torch.device) -> list[PuzzleBatch]:
        """Return the puzzles of a part."""
        return [_on(device, batch) for batch in self.data.loader(part)]

    @property
    def tests(self) -> list[str]:
        """The names of the test sets."""
        return [part for part in self.data.evaluation_sets if part.startswith("test")]


def trained(
    run: str, runs: str, data_root: str, test: int, seed: int, device: torch.device
) -> Trained:
    """Return the ``run`` in the folder ``runs``, with at least so many puzzles in its test sets."""
    folder = Path(runs, run)
    record = read_run(folder)
    config = configuration(record)
    if not issubclass(kind := get_class(config.task._target_), Reasoning):
        raise UserError(f"run must be a run of Reasoning, got {run} of {kind.__name__}")
    config.dataset.test = max(config.dataset.test, test)
    if config.dataset.get("side") == 6:  # other sizes have too few known grids, or puzzles
        config.dataset.known_grids = config.dataset.test
    config.runtime.dataset.root = data_root
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
    return Trained(record, model, data, facts)


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
        run = trained(self.run, self.runs, self.data, self.puzzles, seed, device)
        model, n = run.model, run.facts["segments"]
        if n < 2:
            raise UserError(
                f"run must have 2 segments or more, for residuals, got {n} in {self.run}"
            )
        batches = {part: run.batches(part, device) for part in run.tests}
        traces = {part: self._traces(model, batches[part], n) for part in run.tests}
        is_sudoku = isinstance(run.data, Sudoku)
        numbers = {
            **run.facts,
            "random_start": model.random_start,
            "sets": [{"name": part, **self._numbers(traces[part], n)} for part in run.tests],
            "nearly": self._nearly(model, batches["test"], n) if is_sudoku else [],
        }
        checks = []
        if not (model.noise or model.random_start):
            recorded = run.record.curves["test/exact_accuracy"][run.facts["weights"]["epoch"] - 1]
            tested = traces["test"].solved[0, n - 1, : run.record.config["dataset"]["test"]]
            claim = "plain accuracy less that of the run's record"
            checks.append(Check.below(claim, abs(share(tested) - recorded), _TOLERANCE))
        return Findings(numbers, checks)

    def _traces(self, model: Any, batches: Sequence[PuzzleBatch], n: int) -> Trace:
        """Return the traces from all starts, stacked; the first is that of the plain evaluation."""
        traces = [trace(model, batches, n * self.depth)]
        for _ in progress(range(1, self.starts)):
            traces.append(trace(model, batches, n * self.depth, random=True))
        return Trace(*map(torch.stack, zip(*traces, strict=True)))

    def _numbers(self, traces: Trace, n: int) -> dict[str, Any]:
        """Return what more segments, more starts, and the residual of the first start tell."""
        breadth, residuals = [], []
        for segments in range(n, n * self.depth + 1, n):
            answers, solved, residual = traces.after(segments)
            for r in sorted({self.starts, *(2**i for i in range(self.starts.bit_length()))}):
                rates = selected(answers[:r], solved[:r], residual[:r])
                breadth.append({"segments": segments, "starts": r, **rates})
            first = zip(RESIDUALS, residual[0].T, strict=True)
            of_first = {kind: of_residual(values, solved[0]) for kind, values in first}
            residuals.append({"segments": segments, **of_first})
        return {**along(traces.solved[0]), "breadth": breadth, "residuals": residuals}

    def _nearly(self, model: Any, batches: Sequence[PuzzleBatch], n: int) -> list[dict[str, Any]]:
        """Return the accuracies on puzzles in which few cells are missing."""
        keys, rows = [torch.rand(batch.inputs.shape) for batch in batches], []
        for missing in self.missing:
            filled = [filled_in(*pair, missing) for pair in zip(batches, keys, strict=True)]
            rows.append({"missing": missing, **along(trace(model, filled, n * self.depth).solved)})
        return rows


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


def filled_in(batch: PuzzleBatch, keys: Tensor, missing: int) -> PuzzleBatch:
    """Fill in all blank cells but ``missing``, those with the smallest keys."""
    blank = batch.inputs == _BLANK
    ranks = torch.where(blank, keys.to(blank.device), 2).argsort(dim=1).argsort(dim=1)
    kept = blank & (ranks < missing)
    return batch._replace(inputs=torch.where(kept, batch.inputs, batch.targets))


def _on(device: torch.device, batch: Iterable[Tensor]) -> PuzzleBatch:
    return PuzzleBatch(*(tokens.to(device) for tokens in batch))
