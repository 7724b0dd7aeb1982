"""How a trained reasoner settles: when it could stop, and whether its starts agree."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from phantomgrad.checks import check_at_least, check_not_negative
from phantomgrad_reasoners.traces import (
    Row,
    StudyOfRun,
    Trace,
    auroc,
    by_set,
    share,
)
from phantomgrad_suite.studies.base import Findings, check_values, rounded

Rule = tuple[str, float]
"""A rule of halting (``fixed``, ``learned``, ``residual``, ``agreement``), and its setting."""


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
class Settling(StudyOfRun):
    r"""A finished run of ``Reasoning``: rules of halting, and the states that starts lead to.

    Each puzzle is solved for ``depth`` times the N segments of training. It could have stopped

    - ``fixed``: after a number of segments, the same for all puzzles;
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

    starts: int = 4
    thresholds: Sequence[float] = (8.0, 4.0, 2.0, 1.0, 0.5, 0.25, 0.125)
    agreeing: Sequence[int] = (2, 3, 4)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_values("thresholds", self.thresholds)
        for threshold in self.thresholds:
            check_not_negative("thresholds", threshold)
        check_values("agreeing", self.agreeing)
        for answers in self.agreeing:
            check_at_least("agreeing", answers, 2)
        check_at_least("depth", self.depth, 2)
        check_at_least("starts", self.starts, 2)

    def measure(self, seed: int, device: torch.device) -> Findings:
        run = self.trained(seed, device)
        n, learned = run.facts["segments"], run.record.config["task"]["halting"]
        (validation,) = run.traces("validation", n * self.depth)
        chosen = cheapest(self.halting(validation, learned), share(validation.solved[-1]))
        tests = {part: run.traces(part, n * self.depth, self.starts) for part in run.tests}
        own = {part: traces[0] for part, traces in tests.items()}
        numbers = {
            **run.facts,
            "sets": by_set(own, lambda found: [{"n": found.solved.shape[1], **drift(found, n)}]),
            "halting": by_set(
                own,
                lambda found: (
                    {**row, "chosen": rule_of(row) in chosen}
                    for row in self.halting(found, learned)
                ),
            ),
            "starts": by_set(tests, lambda traces: agreement(*traces)),
        }
        return Findings(numbers)

    def stops(self, found: Trace, learned: bool) -> dict[Rule, Tensor]:
        """Return in which segments each rule would stop each puzzle, ``(T, B)``."""
        changes, equal = found.changes[..., 1].clone(), equal_answers(found.answers)
        changes[0] = torch.inf  # it has no segment before
        segments = torch.arange(1, len(equal) + 1, device=equal.device)[:, None].expand_as(equal)
        return {
            **{("fixed", float(n)): segments == n for n in range(1, len(equal) + 1)},
            **({("learned", 0.0): found.halting > 0} if learned else {}),
            **{("residual", x): changes < x for x in self.thresholds},
            **{("agreement", float(m)): equal >= m for m in self.agreeing},
        }

    def halting(self, found: Trace, learned: bool) -> list[Row]:
        """Return mean segments and accuracy of each rule."""
        rows = []
        for (rule, setting), stops in self.stops(found, learned).items():
            at = first(stops)
            numbers = {
                "segments": rounded(at.double().mean() + 1),
                "accuracy": share(found.solved.gather(0, at[None])),
            }
            rows.append({"rule": rule, "setting": setting, **numbers})
        return rows


def rule_of(row: Row) -> Rule:
    """Return the rule of a row of numbers."""
    return row["rule"], row["setting"]


def cheapest(rows: Sequence[Row], accuracy: float) -> set[Rule]:
    """Return the setting of each rule that has at least this accuracy in the fewest segments."""
    best: dict[str, Row] = {}
    for row in rows:
        cheaper = row["segments"] < best.get(row["rule"], {"segments": math.inf})["segments"]
        if row["accuracy"] >= accuracy and cheaper:
            best[row["rule"]] = row
    return {*map(rule_of, best.values())}


def drift(found: Trace, n: int) -> Row:
    """Return how the mean change of the state after n segments tells unsolved puzzles."""
    late, solved = found.changes[n:, :, 1].mean(dim=0).double(), found.solved[-1]
    return auroc(late[~solved], late[solved])


def agreement(own: Trace, *others: Trace) -> Iterator[Row]:
    """Yield how answers and states from other starts agree with the own ones, in the end.

    Of all puzzles, and of those that are solved or not from the own start, if there are any.
    """
    answers = torch.stack([(o.answers[-1] == own.answers[-1]).all(dim=-1) for o in others])
    apart = [(o.end - own.end).flatten(2).norm(dim=-1)[0] for o in others]
    distances = torch.stack(apart) / own.end.flatten(2).norm(dim=-1)
    solved = own.solved[-1]
    for puzzles, of in (("all", solved | ~solved), ("solved", solved), ("unsolved", ~solved)):
        if of.any():
            equal, distance = share(answers[:, of]), rounded(distances[:, of].mean())
            yield {"puzzles": puzzles, "answers": equal, "distance": distance}
