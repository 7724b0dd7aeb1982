"""Compare a bench with the last one on the same processor, and add it to ``history.csv``.

    python benchmarks/history.py runs/torchdeq/cpu/seed0/record.json

A case is how many times longer torchdeq takes: outside of f for solves, the whole step for
training. It has the median over the rounds with its 95 % interval, and has become slower where
that interval lies below the last one's. Then the exit status is 1.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import quantile_test

from phantomgrad_suite.runs.records import StudyRecord, read_any

HISTORY = Path(__file__).with_name("history.csv")
INTERVAL = ["low", "ratio", "high"]


def ratios(numbers: dict[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield each case with the ratios of its rounds."""
    for each in numbers["solves"]:
        shape = " x ".join(map(str, each["shape"]))
        yield f"{each['solver']}, {shape}", _ratio(each, "outside f")
    for each in numbers["steps"]:
        yield f"{each['row']}, {each['batch']} {each['unit']}", _ratio(each, "step")


def _ratio(case: dict[str, Any], quantity: str) -> np.ndarray:
    theirs, ours = (case[side]["seconds"][quantity]["samples"] for side in ("torchdeq", "ours"))
    return np.divide(theirs, ours)


def interval(samples: np.ndarray) -> dict[str, float]:
    """Return the median of ``samples`` and its 95 % interval from order statistics."""
    bounds = quantile_test(samples, p=0.5).confidence_interval(0.95)
    return dict(zip(INTERVAL, [bounds.low, np.median(samples), bounds.high], strict=True))


def cases(record: StudyRecord) -> pd.DataFrame:
    """Return a line a case, with what the history says of each."""
    environment = record.environment
    facts = {
        "date": record.finished,
        "revision": environment["git"],
        "processor": environment["processor"],
        "threads": environment["threads"],
        "device": environment["accelerator"] or "cpu",
    }
    lines = [{**facts, "case": name, **interval(x)} for name, x in ratios(record.numbers)]
    return pd.DataFrame(lines).round(dict.fromkeys(INTERVAL, 3))


def last_like(bench: pd.DataFrame, history: pd.DataFrame) -> pd.DataFrame:
    """Return the last line of each case of ``bench`` on the same processor, by case."""
    like = history.merge(bench[["processor", "threads", "device", "case"]])
    before = like[like["date"] < bench["date"].iloc[0]]
    return before.sort_values("date").groupby("case").last()


def main(path: Path) -> int:
    """Print the cases beside the last ones, and return 1 where one has become slower."""
    bench = cases(read_any(path))
    history = pd.read_csv(HISTORY) if HISTORY.exists() else bench.head(0)
    before = last_like(bench, history)[INTERVAL].add_suffix(" before")
    table = bench.set_index("case")[INTERVAL].join(before)
    slower = table.index[table["high"] < table["low before"]]
    where = " ".join(map(str, bench.loc[0, ["processor", "threads"]]))
    print(f"torchdeq's time divided by ours on {where} thread(s):\n{table.to_string()}")
    pd.concat([history, bench]).drop_duplicates(["date", "case"]).to_csv(HISTORY, index=False)
    if len(slower):
        print(f"slower than before: {'; '.join(slower)}")
    return int(len(slower) > 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
