"""Measure the remedies of `docs/stabilisers.md`, ten seeds each.

python docs/measurements/stabilisers/measure.py run    # trains what stabilisers.json lacks (two hours of a core)
python docs/measurements/stabilisers/measure.py table  # writes the tables of the page from it
"""

import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import chains
import digits
import language
import reasoner
import torch

RECORDS = Path(__file__).parents[1] / "stabilisers.json"
PAGE = Path(__file__).parents[2] / "stabilisers.md"
SEEDS = 10


@dataclass(frozen=True)
class Setting:
    """A file of this folder, and its score: which runs have failed, and how it is printed."""

    module: ModuleType
    heading: str
    score: str
    failed: Callable[[float], bool]
    text: Callable[[float], str]


def percent(share: float) -> str:
    """Return 0.123 as 12.3 %."""
    return f"{100 * share:.1f} %"


def nats(loss: float) -> str:
    """Return a loss; of one in the thousands the digits do not matter."""
    return f"{loss:.2f}" if loss < 100 else f"{loss:,.0f}"


SETTINGS = (
    Setting(digits, "Accuracy", "accuracy", lambda a: a < 0.9, percent),
    Setting(chains, "Accuracy", "accuracy", lambda a: a < 0.9, percent),
    Setting(language, "Loss", "loss", lambda x: x > 2.8, nats),
    Setting(reasoner, "Right", "accuracy", lambda a: a < 0.75, percent),
)


def run() -> None:
    """Train what the records lack, seed by seed, and write them after each run."""
    torch.set_num_threads(1)
    for seed in range(SEEDS):
        for setting in SETTINGS:
            name = setting.module.__name__
            for variant in setting.module.VARIANTS:
                key = {"setting": name, "variant": variant.name, "seed": seed}
                records = read()
                if key not in [{k: r[k] for k in key} for r in records]:
                    write([*records, key | setting.module.train(variant, seed)])


def read() -> list[dict[str, Any]]:
    """Return the records, a run each."""
    return json.loads(RECORDS.read_text()) if RECORDS.exists() else []


def write(records: list[dict[str, Any]]) -> None:
    """Write the records, a line each."""
    lines = ",\n".join(json.dumps(r, ensure_ascii=False) for r in records)
    RECORDS.write_text(f"[\n{lines}\n]\n")


def table(setting: Setting) -> str:
    """Return the table of one setting in Markdown."""
    records = [r for r in read() if r["setting"] == setting.module.__name__]
    lines = [
        f"| Remedy | Failed | {setting.heading} | Converged | Solve | Adjoint | Radius |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for variant in setting.module.VARIANTS:
        runs = [r for r in records if r["variant"] == variant.name]
        failed = sum(not r["finished"] or setting.failed(r[setting.score]) for r in runs)
        score, converged = (median([r[k] for r in runs]) for k in (setting.score, "converged"))
        forward, adjoint = (median([r[f"{k}evaluations"] for r in runs]) for k in ("", "adjoint_"))
        radius = median([math.inf if r["radius"] is None else r["radius"] for r in runs])
        lines.append(
            f"| {variant.name} | {failed}/{len(runs)} | {setting.text(score)} | "
            f"{100 * converged:.0f} % | {forward:.1f} | {f'{adjoint:.1f}' if adjoint else '—'} | "
            f"{f'{radius:.2f}' if math.isfinite(radius) else '—'} |"
        )
    return "\n".join(lines)


def with_tables(page: str) -> str:
    """Return the page with its tables made anew."""
    for setting in SETTINGS:
        start, end = f"<!-- table: {setting.module.__name__} -->\n", "<!-- end -->"
        before, found, rest = page.partition(start)
        page = f"{before}{found}{table(setting)}\n{rest[rest.index(end) :]}"
    return page


if __name__ == "__main__":
    if sys.argv[1:] == ["run"]:
        run()
    elif sys.argv[1:] == ["table"]:
        PAGE.write_text(with_tables(PAGE.read_text()))
    else:
        sys.exit(__doc__)
