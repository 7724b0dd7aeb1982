"""How a trained reasoner settles: when it could stop, and whether its starts agree."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from phantomgrad.checks import check_at_least, check_not_negative, check_several
from phantomgrad_reasoners.scaling import Trace, auroc, share, trace, trained
from phantomgrad_suite.studies.base import Findings, Study, progress, rounded

Rule = tuple[str, float]
"""A rule of halting (``learned``, ``residual``, ``agreement``), and its setting."""


def equal_answers(answers: Tensor) -> Tensor:
    """Return how many answers in a row, up to each of ``(T, B, S)``, are the same, ``(T, B)``."""
    counts = [torch.ones_like(answers[0, :, 0])]
    for before, after in pairwise(answers):
        counts.append(torch.where((before == after).all(dim=-1), counts[-1] + 1, 1))
    return torch.stack(counts)


def first(stops: Tensor) -> Tensor:
    """Return the first segment in which each puzzle stops, ``(B,)``; the last one stops it."""
    segments = stops.int()
    segments[-1] = 1
    return segments.argmax(dim=0)


@dataclass(frozen=True, kw_only=True)
class Settling(Study):
    r"""A finished run of ``Reasoning``: rules of halting, and the states that starts lead to.

    Each puzzle is solved for ``depth`` times the N segments of training. It could have stopped

    - ``residual``: where the mean change of a cell's state in a segment is below one of
      ``thresholds``, :math:`\frac{1}{S} \sum_{i \le S} \|f(h)_i - h_i\|`;
    - ``agreement``: where an answer has been given so many times in a row (``agreeing``);
    - ``learned``: where the halting logit is positive, if it was trained.

    For each rule, the setting with the fewest segments among those that lose nothing on the
    validation puzzles, against all segments, is ``chosen``.

    Path independence: the same puzzles from ``starts`` states, compared with the model's own: equal
    answers, and :math:`\|h - h'\| / \|h\|` in the end. ``drift`` is how the mean change in the
    segments after the N of training tells unsolved puzzles from solved ones (AUROC).
    """

    run: str  # the folder of the run in ``runs``
    depth: int = 4
    starts: int = 4
    puzzles: int = 256  # of each test set, or more if the run has tested on more
    thresholds: Sequence[float] = (8.0, 4.0, 2.0, 1.0, 0.5, 0.25, 0.125)
    agreeing: Sequence[int] = (2, 3, 4)
    runs: str = "runs"
    data: str = "data"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_several("thresholds", self.thresholds)
        for threshold in self.thresholds:
            check_not_negative("thresholds", threshold)
        check_several("agreeing", self.agreeing)
        for answers in self.agreeing:
            check_at_least("agreeing", answers, 2)
        check_at_least("depth", self.depth, 2)
        check_at_least("starts", self.starts, 2)

    def measure(self, seed: int, device: torch.device) -> Findings:
        run = trained(self.run, self.runs, self.data, self.puzzles, seed, device)
        segments, n = run.facts["segments"] * self.depth, run.facts["segments"]
        learned = run.record.config["task"]["halting"]
        validation = run.batches("validation", device)
        chosen = self._chosen(trace(run.model, validation, segments), learned)
        sets = []
        for part in run.tests:
            batches = run.batches(part, device)
            own = trace(run.model, batches, segments)
            others = [
                trace(run.model, batches, segments, random=True)
                for _ in progress(range(1, self.starts))
            ]
            late = own.changes[n:, :, 1].mean(dim=0).double()
            sets.append(
                {
                    "name": part,
                    "n": own.solved.shape[1],
                    "accuracy": [share(rows) for rows in own.solved],
                    "halting": self._halting(own, learned, chosen),
                    "starts": agreement(own, others),
                    "drift": auroc(late[~own.solved[-1]], late[own.solved[-1]]),
                }
            )
        return Findings({**run.facts, "sets": sets})

    def stops(self, found: Trace, learned: bool) -> dict[Rule, Tensor]:
        """Return in which segments each rule would stop each puzzle, ``(T, B)``."""
        changes, equal = found.changes[..., 1].clone(), equal_answers(found.answers)
        changes[0] = torch.inf  # it has no segment before
        return {
            **({("learned", 0.0): found.halting > 0} if learned else {}),
            **{("residual", x): changes < x for x in self.thresholds},
            **{("agreement", float(m)): equal >= m for m in self.agreeing},
        }

    def _chosen(self, found: Trace, learned: bool) -> set[Rule]:
        """Return the cheapest setting of each rule that loses no puzzle of all segments."""
        best: dict[str, tuple[float, Rule]] = {}
        for rule, stops in self.stops(found, learned).items():
            at = first(stops)
            if share(found.solved.gather(0, at[None])) >= share(found.solved[-1]):
                cost = float(at.double().mean()), rule
                best[rule[0]] = min(best.get(rule[0], cost), cost)
        return {rule for _, rule in best.values()}

    def _halting(self, found: Trace, learned: bool, chosen: set[Rule]) -> list[dict[str, Any]]:
        rows = []
        for rule, stops in self.stops(found, learned).items():
            at = first(stops)
            rows.append(
                {
                    **{"rule": rule[0], "setting": rule[1], "chosen": rule in chosen},
                    "segments": rounded(at.double().mean() + 1),
                    "accuracy": share(found.solved.gather(0, at[None])),
                }
            )
        return rows


def agreement(own: Trace, others: Sequence[Trace]) -> dict[str, Any]:
    """Return how answers and states from other starts agree with the own ones, in the end.

    Of all puzzles, and of those that are ``solved`` or not from the own start; ``None`` of none.
    """
    answers = torch.stack([(o.answers[-1] == own.answers[-1]).all(dim=-1) for o in others])
    apart = [(o.end - own.end).flatten(2).norm(dim=-1)[0] for o in others]
    distances = torch.stack(apart) / own.end.flatten(2).norm(dim=-1)
    solved = own.solved[-1]
    groups = {"all": solved | ~solved, "solved": solved, "unsolved": ~solved}
    return {
        name: {"answers": share(answers[:, of]), "distance": rounded(distances[:, of].mean())}
        if of.any()
        else None
        for name, of in groups.items()
    }
