"""Halting and path independence of trained reasoners: two tables and a figure."""

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

import pandas as pd

from phantomgrad_reasoners.report.scaling_tables import by_row, mean_of, set_names, title_of
from phantomgrad_suite.report.catalogue import FIGURES, Entry
from phantomgrad_suite.report.document import DASH, Section, Table, section
from phantomgrad_suite.report.figures.run_figures import mean_curve
from phantomgrad_suite.report.figures.style import Lines, Plot, file_name
from phantomgrad_suite.report.studies.parts import Numbers, Records

RULES = {
    "learned": "Learned halt",
    "residual": "Small residual",
    "agreement": "Equal answers in a row",
}


def tables(entry: Entry, records: Records) -> Iterator[Section]:
    """Yield what each rule of halting saves, then how starts agree."""
    for group in by_row(records):
        facts = {**group[0].setting, "runs": len(group), "n": group[0].numbers["sets"][0]["n"]}
        for part, make, words in (("halting", _halting, 2), ("starts", _starts, 1)):
            title, text = entry.text[part].split("\n")
            rows = [row for sets in _sets(group) for row in make(group[0].numbers, *sets)]
            yield section(f"{title_of(group)}: {title}", rows, words, text=text.format(**facts))


def figures(table: Table) -> Iterator[Plot]:
    """Yield accuracy by segments used, for each row of trained runs."""
    for group in by_row(table.studies):
        points = pd.concat(_curves(group), ignore_index=True)
        name = file_name(table.key, group[0].numbers["row"])
        note = "mean over runs; band: ± one standard error" if len(group) > 1 else ""
        about = name, FIGURES["settling"], f"{title_of(group)}: {_saving(group)}"
        yield Lines(*about, points, "mean segments used", note=note)


def _saving(group: Records) -> str:
    """Return the fewest segments with which halting by residual loses nothing on the first set."""
    (_, sets), *_ = _sets(group)
    deepest = len(sets[0]["accuracy"])
    whole = fmean(part["accuracy"][-1] for part in sets)
    found = [
        (fmean(row["segments"] for row in rows), fmean(row["accuracy"] for row in rows))
        for rows in zip(*(part["halting"] for part in sets), strict=True)
        if rows[0]["rule"] == "residual"
    ]
    kept = [segments for segments, accuracy in found if round(accuracy - whole, 3) >= 0]
    least = f"with {min(kept):.1f}" if kept else "with no fewer"
    return f"by residual, {100 * whole:.1f} % {least} of {deepest} segments"


def _sets(group: Records) -> list[tuple[str, list[Numbers]]]:
    """Return the name of each test set, and its numbers in each run."""
    names = set_names(group)
    return [(name, [r.numbers["sets"][i] for r in group]) for i, name in enumerate(names)]


def _halting(numbers: Numbers, name: str, sets: Sequence[Numbers]) -> Iterator[dict[str, str]]:
    deepest = len(sets[0]["accuracy"])
    for n in (numbers["segments"], deepest):
        accuracies = [part["accuracy"][n - 1] for part in sets]
        none = {"Setting": "", "Chosen in": ""}
        yield {"Puzzles": name, "Halt": f"After {n}", **none, **_cost([n], accuracies, deepest)}
    for found in zip(*(part["halting"] for part in sets), strict=True):
        spent, accuracies = ([row[key] for row in found] for key in ("segments", "accuracy"))
        yield {
            "Puzzles": name,
            "Halt": RULES[found[0]["rule"]],
            "Setting": f"{found[0]['setting']:g}" * (found[0]["rule"] != "learned"),
            "Chosen in": f"{sum(row['chosen'] for row in found)} of {len(found)}",
            **_cost(spent, accuracies, deepest),
        }


def _cost(segments: Sequence[float], accuracies: Sequence[float], deepest: int) -> dict[str, str]:
    mean = fmean(segments)
    return {
        "Segments": f"{mean:.1f}",
        "Saved (%)": f"{100 * (1 - mean / deepest):.0f}",
        "Exact accuracy": mean_of(accuracies),
    }


def _starts(_: Numbers, name: str, sets: Sequence[Numbers]) -> Iterator[dict[str, str]]:
    row = {"Puzzles": name}
    for of in ("all", "solved", "unsolved"):
        found = [part["starts"][of] for part in sets if part["starts"][of]]
        distance = f"{fmean(x['distance'] for x in found):.3f}" if found else DASH
        row[f"Equal answers, {of}"] = mean_of([x["answers"] for x in found]) if found else DASH
        row[f"Distance, {of}"] = distance
    areas = [part["drift"][0] for part in sets if part["drift"]]
    yield {**row, "AUROC of drift": ", ".join(f"{area:.3f}" for area in areas) or DASH}


def _curves(group: Records) -> Iterator[pd.DataFrame]:
    """Yield a row of panels of each test set: all puzzles alike, and each rule by its settings."""
    for name, sets in _sets(group):
        panel = "exact accuracy (%)", name.lower()
        runs: list[Any] = [part["accuracy"] for part in sets]
        yield mean_curve("the same for all", runs, panel, 100)
        for rule, label in RULES.items():
            by_run = [[row for row in part["halting"] if _is(row, rule)] for part in sets]
            if by_run[0]:
                x = [fmean(row["segments"] for row in rows) for rows in zip(*by_run, strict=True)]
                runs = [[row["accuracy"] for row in rows] for rows in by_run]
                yield mean_curve(label.lower(), runs, panel, 100, x)


def _is(row: Numbers, rule: str) -> bool:
    return bool(row["rule"] == rule)
