"""One of several answers to a puzzle, chosen by rules; and errors as their residuals show them."""

from typing import Any

import torch
from torch import Tensor

from phantomgrad_suite.studies.base import rounded

RESIDUALS = ("logits", "state")
DECADES = (-4, 2)  # of the histograms of residuals, in bins of a tenth
_NORMAL = 1.96  # of a two-sided interval of 95 %


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
