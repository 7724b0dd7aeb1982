"""Test-time scaling as tables: depth, breadth, and what the residual tells."""

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from statistics import fmean, stdev
from typing import Any

from phantomgrad_suite.report.catalogue import Entry
from phantomgrad_suite.report.document import DASH, Section, section
from phantomgrad_suite.report.studies.parts import Numbers, Records
from phantomgrad_suite.runs.records import StudyRecord

RULES = {
    "single": "One start (mean)",
    "vote": "Majority",
    "logits": "Residual of logits",
    "state": "Residual of state",
    "any": "Any right",
}
"""How one of several answers is chosen, and the bounds: their headings."""


def scaling(entry: Entry, records: Records) -> Iterator[Section]:
    """Yield three sections for each row of trained runs."""
    for group in by_row(records):
        first, names = group[0].numbers, set_names(group)
        facts = {**group[0].setting, "runs": len(group), "n": first["sets"][0]["n"]}
        facts["drawn"] = entry.text["drawn" if first["random_start"] else "saved"]
        parts: list[tuple[str, Callable[..., list[Any]], int]] = [
            ("depth", _depth, 1),
            ("breadth", _breadth, 3),
            ("residual", _residual, 3),
        ]
        for part, make, words in parts:
            title, text = entry.text[part].split("\n")
            title, rows = f"{title_of(group)}: {title}", make(group, names)
            yield section(title, rows, words, text=text.format(**facts))


def by_row(records: Records) -> list[list[StudyRecord]]:
    """Return the records of the seeds of each row, measured with the same setting."""

    def key(record: StudyRecord) -> tuple[str, ...]:
        setting = {name: value for name, value in record.setting.items() if name != "run"}
        changed = record.numbers["instance"].partition("-")[2]
        return record.numbers["row"], changed, json.dumps(setting, sort_keys=True)

    return [list(group) for _, group in groupby(sorted(records, key=key), key)]


def title_of(group: Records) -> str:
    """Return what the runs of a row are of, and in brackets how run or study differ from it."""
    label, changed = group[0].numbers["label"], group[0].numbers["instance"].partition("-")[2]
    name = f"{label['dataset']}: {label['model']}, {label['method']}"
    different = ", ".join(filter(None, (changed, *group[0].changes)))
    return f"{name} [{different}]" if different else name


def set_names(group: Records) -> list[str]:
    """Return how the test sets are printed, in their order."""
    keys = [part["name"] for part in group[0].numbers["sets"]]
    known = {"test/known_grids": "Known grids"}
    known["test"] = "New grids" if set(known) & set(keys) else "Test"
    return [known.get(key, key) for key in keys]


def depths(group: Records) -> list[int]:
    """Return the number of segments in training, and the largest one."""
    n = group[0].numbers["segments"]
    return sorted({n, n * group[0].setting["depth"]})


def _depth(group: Records, names: Sequence[str]) -> list[dict[str, str]]:
    n, depth = group[0].numbers["segments"], group[0].setting["depth"]
    shown = sorted({1, 2, *range(n, n * depth + 1, n)})
    parts = [
        (name, [record.numbers["sets"][i] for record in group]) for i, name in enumerate(names)
    ]
    for i, row in enumerate(group[0].numbers["nearly"]):
        cells = row["missing"]
        name = f"{cells} cell{'s' * (cells > 1)} missing" if cells else "The solution"
        parts.append((name, [record.numbers["nearly"][i] for record in group]))
    return [
        {
            "Puzzles": name,
            **{
                f"{s} segment{'s' * (s > 1)}{' (training)' * (s == n)}": mean_of(
                    [part["accuracy"][s - 1] for part in found]
                )
                for s in shown
            },
            "Lost": mean_of([part["lost"] for part in found]),
        }
        for name, found in parts
    ]


def _breadth(group: Records, names: Sequence[str]) -> list[dict[str, str]]:
    rows: list[dict[str, str]] = []
    for i, name in enumerate(names):
        for j, cell in enumerate(group[0].numbers["sets"][i]["breadth"]):
            if cell["segments"] in depths(group):
                found = [record.numbers["sets"][i]["breadth"][j] for record in group]
                rates = {title: mean_of([c[rule] for c in found]) for rule, title in RULES.items()}
                steps = f"{cell['segments']} segments"
                rows.append(
                    {"Puzzles": name, "Depth": steps, "Starts": str(cell["starts"]), **rates}
                )
    return rows


def _residual(group: Records, names: Sequence[str]) -> list[dict[str, str]]:
    return [
        {
            "Puzzles": name,
            "Depth": f"{row['segments']} segments",
            "Run": record.numbers["instance"],
            "Unsolved": f"{sum(row['state']['unsolved'])} of {record.numbers['sets'][i]['n']}",
            "AUROC, logits": _interval(row["logits"]),
            "AUROC, state": _interval(row["state"]),
        }
        for i, name in enumerate(names)
        for segments in depths(group)
        for record in group
        for row in record.numbers["sets"][i]["residuals"]
        if row["segments"] == segments
    ]


def mean_of(values: Sequence[float]) -> str:
    """Return the mean and the spread of shares, in percent."""
    percent = [100 * value for value in values]
    mean, spread = fmean(percent), stdev(percent) if len(percent) > 1 else 0.0
    return f"{mean:.1f}" + (f" ± {spread:.1f}" if len(percent) > 1 else "")


def _interval(found: Numbers) -> str:
    if found["auroc"] is None:
        return DASH
    area, low, high = found["auroc"]
    return f"{area:.3f} [{low:.3f}, {high:.3f}]"
