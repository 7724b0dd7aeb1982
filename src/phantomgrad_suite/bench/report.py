"""The results as data and as a table."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from phantomgrad_suite.bench.contest import (
    HOISTED,
    MEMORY,
    OURS,
    PEER,
    PLAIN,
    Comparison,
    Outcome,
)

_GRADIENT_HEADER = (
    *("UPG against implicit", "step less", "forward less", "backward less"),
    *("implicit / s", "UPG / s"),
)
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
            {
                "quantity": aim.quantity,
                "times_less": aim.factor,
                "against": aim.against,
                "met": comparison.met(aim),
            }
            for aim in comparison.aims
        ],
        "limits": [
            {**limit._asdict(), "kept": comparison.kept(limit)} for limit in comparison.limits
        ],
        "samples": comparison.samples,
        "step_in_f": {"seconds": comparison.in_f(), "times_less": comparison.floor()},
        "outside_f": {
            "share_of_solves": comparison.share_outside(),
            "at_most": comparison.most_outside,
            "met": comparison.little_outside(),
        },
    }


def as_table(comparisons: Sequence[Comparison]) -> str:
    """Return a Markdown table, aligned, a row for each quantity of each case and each rival."""
    rows: list[tuple[str, ...]] = [_HEADER]
    for comparison in comparisons:
        lines = [
            _row(comparison, quantity, rival)
            for rival in comparison.rivals
            for quantity in comparison.quantities
        ]
        lines += _outside(comparison)
        rows += [(comparison.case if i == 0 else "", *line) for i, line in enumerate(lines)]
    return _aligned(rows)


def as_gradient_table(comparisons: Sequence[Comparison]) -> str:
    """Return a Markdown table: what the phantom gradient saves in each model, on either side.

    Empty without a model that was measured with both gradients.
    """
    by_name = {comparison.case: comparison for comparison in comparisons}
    pairs = [
        (name.removesuffix(", UPG"), by_name[implicit], phantom)
        for name, phantom in by_name.items()
        for implicit in (f"{name.removesuffix(', UPG')}, implicit",)
        if name.endswith(", UPG") and implicit in by_name
    ]
    rows = [
        (
            f"{model}, {side}",
            *(_times(_less(implicit, phantom, side, q)) for q in ("step", "forward", "backward")),
            *(f"{c.samples / c.outcomes[side].median('step'):.1f}" for c in (implicit, phantom)),
        )
        for model, implicit, phantom in pairs
        for side in (OURS, PEER, HOISTED)
        if side in implicit.outcomes
    ]
    return _aligned([_GRADIENT_HEADER, *rows], words=1) if rows else ""


def _less(implicit: Comparison, phantom: Comparison, side: str, quantity: str) -> float:
    return implicit.outcomes[side].median(quantity) / phantom.outcomes[side].median(quantity)


def _aligned(rows: Sequence[tuple[str, ...]], words: int = 2) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [_line(row, widths, words, heading=i == 0) for i, row in enumerate(rows)]
    rule = ["-" * w if i < words else "-" * (w - 1) + ":" for i, w in enumerate(widths)]
    return "\n".join([lines[0], _line(rule, widths, words), *lines[1:]])


def _line(cells: Sequence[str], widths: Sequence[int], words: int, *, heading: bool = False) -> str:
    padded = [
        cell.ljust(width) if heading or i < words else cell.rjust(width)
        for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return f"| {' | '.join(padded)} |"


def _row(comparison: Comparison, quantity: str, rival: str) -> tuple[str, ...]:
    is_peer = rival == PEER
    return (
        quantity if is_peer else f"{quantity}, against {rival}",
        *[_amount(comparison.outcomes.get(name), quantity) for name in (OURS, rival)],
        _times(comparison.ratio(quantity, rival)),
        _times(comparison.paired_ratio(quantity, rival)) if quantity != MEMORY else "",
        _amount(comparison.outcomes.get(PLAIN), quantity) if is_peer else "",
        "; ".join(
            [
                *_aims(comparison, quantity, rival),
                *(_limits(comparison, quantity) if is_peer else []),
            ]
        ),
    )


def _aims(comparison: Comparison, quantity: str, rival: str) -> list[str]:
    return [
        f"{aim.factor:g} {_VERDICTS[comparison.met(aim)]}"
        for aim in comparison.aims
        if aim.quantity == quantity and aim.against == rival
    ]


def _limits(comparison: Comparison, quantity: str) -> list[str]:
    return [
        f"{limit.seconds:g} s on {limit.threads} threads {_VERDICTS[comparison.kept(limit)]}"
        for limit in comparison.limits
        if limit.quantity == quantity
    ]


def _outside(comparison: Comparison) -> list[tuple[str, ...]]:
    watched, share = comparison.in_f(), comparison.share_outside()
    if watched is None or share is None:
        return []
    ours = f"{statistics.median(watched) * 1e3:.2f} ms"
    aim = ""
    if comparison.most_outside is not None:
        aim = f"{comparison.most_outside:.0%} {_VERDICTS[comparison.little_outside()]}"
    return [
        ("step but outside f", ours, "", "", _times(comparison.floor()), "", ""),
        ("outside f, of a solve", f"{share:.1%}", "", "", "", "", aim),
    ]


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
