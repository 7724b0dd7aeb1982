"""The results as data and as a table."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from phantomgrad.studies.speed.contest import MEMORY, OURS, PEER, PLAIN, Comparison, Outcome

_HEADER = ("case", "quantity", "ours", "torchdeq", "times less", "paired", "plain", "aim")


def as_data(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as plain data: every sample, and what follows from them."""
    others = [name for name in comparison.outcomes if name != OURS]
    return {
        "case": comparison.case,
        "contenders": {name: _outcome(o) for name, o in comparison.outcomes.items()},
        "times_less": {
            name: {
                quantity: {
                    "ratio_of_medians": comparison.ratio(quantity, name),
                    "median_of_paired_ratios": comparison.paired_ratio(quantity, name),
                }
                for quantity in comparison.quantities
            }
            for name in others
        },
        "aims": [
            {"quantity": aim.quantity, "times_less": aim.factor, "met": comparison.met(aim)}
            for aim in comparison.aims
        ],
    }


def as_table(comparisons: Sequence[Comparison]) -> str:
    """Return a Markdown table, aligned, a row for each quantity of each case."""
    rows: list[tuple[str, ...]] = [_HEADER]
    for comparison in comparisons:
        rows += [_row(comparison, quantity) for quantity in comparison.quantities]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADER))]
    lines = [_line(row, widths, str.ljust if i == 0 else None) for i, row in enumerate(rows)]
    rule = ["-" * w if i < 2 else "-" * (w - 1) + ":" for i, w in enumerate(widths)]
    return "\n".join([lines[0], _line(rule, widths), *lines[1:]])


def _line(
    cells: Sequence[str], widths: Sequence[int], pad: Callable[[str, int], str] | None = None
) -> str:
    padded = [
        (pad or (str.ljust if i < 2 else str.rjust))(cell, width)
        for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return f"| {' | '.join(padded)} |"


def _row(comparison: Comparison, quantity: str) -> tuple[str, ...]:
    first = quantity == comparison.quantities[0]
    return (
        comparison.case if first else "",
        quantity,
        *[_amount(comparison.outcomes.get(name), quantity) for name in (OURS, PEER)],
        _times(comparison.ratio(quantity)),
        _times(comparison.paired_ratio(quantity)) if quantity != MEMORY else "",
        _amount(comparison.outcomes.get(PLAIN), quantity),
        "; ".join(
            f"{aim.factor:g} {_VERDICTS[comparison.met(aim)]}"
            for aim in comparison.aims
            if aim.quantity == quantity
        ),
    )


_VERDICTS = {True: "met", False: "NOT MET", None: "not measured"}


def _amount(outcome: Outcome | None, quantity: str) -> str:
    if outcome is None:
        return ""
    if quantity == MEMORY:
        return f"{outcome.peak_bytes / 2**20:.1f} MiB"
    return f"{outcome.median(quantity) * 1e3:.2f} ms"


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def _outcome(outcome: Outcome) -> dict[str, Any]:
    quantities = outcome.runs[0].seconds
    return {
        "evaluations": outcome.evaluations,
        "rounds": len(outcome.runs),
        "peak_bytes": outcome.peak_bytes,
        "seconds": {
            quantity: {
                "median": outcome.median(quantity),
                "quartiles": _quartiles(outcome.samples(quantity)),
                "samples": outcome.samples(quantity),
            }
            for quantity in quantities
        },
    }


def _quartiles(samples: list[float]) -> list[float]:
    if len(samples) < 2:
        return samples * 3
    return statistics.quantiles(samples, n=4, method="inclusive")
