"""Test-time scaling of a trained reasoner: more segments, several starts, and its residual."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from phantomgrad_reasoners.traces import (
    Row,
    StudyOfRun,
    Trace,
    Trained,
    auroc,
    by_set,
    share,
)
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.records import Check
from phantomgrad_suite.studies.base import Findings

RESIDUALS = ("logits", "state")
_LAST = 3  # changes that a residual is the mean of, as in EqR
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


def stacked(traces: Sequence[Trace]) -> Trace:
    """Return traces from R starts as one, R in front."""
    return Trace(*map(torch.stack, zip(*traces, strict=True)))


def residual(changes: Tensor, segments: int) -> Tensor:
    """Return the mean of the last changes, ``(B, 2)``, of ``(T, B, 2)`` after some segments."""
    return changes[max(1, segments - _LAST) : segments].mean(dim=0)


def by_segment(solved: Tensor) -> list[Row]:
    """Return the accuracy after each segment, from ``(T, B)``."""
    return [{"segments": t, "accuracy": share(rows)} for t, rows in enumerate(solved, start=1)]


def lost(solved: Tensor) -> float:
    """Return the share of puzzles that lose a solution which they had, from ``(T, B)``."""
    left = solved.int().cummax(dim=0).values.bool() & ~solved
    return share(left.any(dim=0))


@dataclass(frozen=True, kw_only=True)
class Scaling(StudyOfRun):
    r"""A finished run of ``Reasoning``, evaluated with more computation than in training.

    Depth: accuracy after each segment, to ``depth`` times the N of training. Breadth: each puzzle
    is answered from ``starts`` states, the first that of the plain evaluation. A model trained with
    random starts draws the others itself; one with saved vectors gets other vectors of the same
    distribution. Noise is the model's. One answer is chosen, by a majority of whole answers (the
    earliest of equals), or as the one with the smallest residual, the mean over the last three of

    .. math:: \frac{1}{S} \sum_{i \le S} \|a_i^{(t+1)} - a_i^{(t)}\|

    over segments t, with the logits of cell i as :math:`a_i` (the rule in EqR's code), or its state
    (y, z) (that of the paper, arXiv:2605.21488). Errors: how the residual of the plain evaluation
    tells unsolved puzzles from solved ones.
    """

    def measure(self, seed: int, device: torch.device) -> Findings:
        run = self.trained(seed, device)
        n = run.facts["segments"]
        if n < 2:
            raise UserError(
                f"run must have 2 segments or more, for residuals, got {n} in {self.run}"
            )
        tests = {part: stacked(run.traces(part, n * self.depth, self.starts)) for part in run.tests}
        own = {part: found.solved[0] for part, found in tests.items()}
        numbers = {
            **run.facts,
            "sets": by_set(own, lambda solved: [{"n": solved.shape[1], "lost": lost(solved)}]),
            "depth": by_set(own, by_segment),
            "breadth": by_set(tests, lambda found: self._breadth(found, n)),
            "errors": by_set(tests, lambda found: self._errors(found, n)),
        }
        return Findings(numbers, [*_checks(run, own)])

    def _depths(self, n: int) -> range:
        return range(n, n * self.depth + 1, n)

    def _breadth(self, found: Trace, n: int) -> Iterator[Row]:
        """Yield the accuracy of each rule with more segments and more starts."""
        for segments in self._depths(n):
            answers, solved = found.answers[:, segments - 1], found.solved[:, segments - 1]
            residuals = torch.stack([residual(each, segments) for each in found.changes])
            for r in sorted({self.starts, *(2**i for i in range(self.starts.bit_length()))}):
                rates = selected(answers[:r], solved[:r], residuals[:r])
                for rule, accuracy in rates.items():
                    yield {"segments": segments, "starts": r, "rule": rule, "accuracy": accuracy}

    def _errors(self, found: Trace, n: int) -> Iterator[Row]:
        """Yield how the residuals of the first start tell errors."""
        for segments in self._depths(n):
            solved = found.solved[0, segments - 1]
            residuals = residual(found.changes[0], segments).double().T
            for kind, values in zip(RESIDUALS, residuals, strict=True):
                about = {"segments": segments, "kind": kind, "unsolved": int((~solved).sum())}
                yield about | auroc(values[~solved], values[solved])


def _checks(run: Trained, own: Mapping[str, Tensor]) -> Iterator[Check]:
    """Yield that the plain evaluation is that of the record, where nothing is drawn."""
    if run.model.noise or run.model.random_start:
        return
    recorded = run.record.curves["test/exact_accuracy"][run.facts["weights"]["epoch"] - 1]
    tested = own["test"][run.facts["segments"] - 1, : run.record.config["dataset"]["test"]]
    claim = "plain accuracy less that of the run's record"
    yield Check.below(claim, abs(share(tested) - recorded), _TOLERANCE)
