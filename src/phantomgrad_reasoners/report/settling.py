"""Halting and path independence of trained reasoners: three tables and a figure."""

from collections.abc import Iterator

import pandas as pd

from phantomgrad_reasoners.report.groups import (
    by_row,
    curves,
    frame,
    interval,
    lines,
    mean_of,
    sections,
)
from phantomgrad_suite.report.catalogue import Entry
from phantomgrad_suite.report.document import DASH, Section, Table
from phantomgrad_suite.report.figures.style import Plot
from phantomgrad_suite.report.studies.parts import Records

_RULES = {
    "fixed": "The same for all",
    "learned": "Learned halt",
    "residual": "Small residual",
    "agreement": "Equal answers in a row",
}


def tables(entry: Entry, records: Records) -> Iterator[Section]:
    """Yield what each rule of halting saves, how starts agree, and how unsolved puzzles drift."""
    yield from sections(entry, records, {"halting": _halting, "starts": _starts, "drift": _drift})


def _halting(group: Records) -> pd.DataFrame:
    rows, n = frame(group, "halting"), group[0].numbers["segments"]
    deepest = rows["segments"].max()
    rows = rows[(rows["rule"] != "fixed") | rows["setting"].isin([n, deepest])]
    rows = rows.assign(rule=rows["rule"].map(_RULES), setting=rows["setting"].map("{:g}".format))
    groups = rows.groupby(["set", "rule", "setting"], sort=False)
    segments = groups["segments"].mean()
    return pd.DataFrame(
        {
            "Chosen in": groups["chosen"].agg(_chosen),
            "Segments": segments.map("{:.1f}".format),
            "Saved (%)": (100 * (1 - segments / deepest)).map("{:.0f}".format),
            "Exact accuracy": groups["accuracy"].agg(mean_of),
        }
    )


def _chosen(values: pd.Series) -> str:
    """Return in how many runs a setting is chosen; older records do not say it of all rules."""
    return DASH if values.isna().any() else f"{int(values.sum())} of {len(values)}"


def _starts(group: Records) -> pd.DataFrame:
    groups = frame(group, "starts").groupby(["set", "puzzles"], sort=False)
    equal, distance = groups["answers"].agg(mean_of), groups["distance"].mean()
    return pd.DataFrame({"Equal answers": equal, "Distance": distance.map("{:.3f}".format)})


def _drift(group: Records) -> pd.DataFrame:
    rows = frame(group, "sets").set_index(["run", "set"])
    return rows.apply(interval, axis=1).to_frame("AUROC of drift")


def figures(table: Table) -> Iterator[Plot]:
    """Yield accuracy by segments used, for each row of trained runs."""
    for group in by_row(table.studies):
        rows = frame(group, "halting")
        rows = rows.assign(
            label=rows["rule"].map(_RULES).str.lower(),
            row="exact accuracy (%)",
            column=rows["set"].str.lower(),
            x=rows["segments"],
        )
        yield lines(table, group, _saving(rows), curves(rows, "setting"), "mean segments used")


def _saving(rows: pd.DataFrame) -> str:
    """Return the fewest segments with which halting by residual loses nothing on the first set."""
    rows = rows[rows["set"] == rows["set"].iloc[0]]
    means = rows.groupby(["rule", "setting"])[["segments", "accuracy"]].mean()
    longest, by_residual = means.loc["fixed"].iloc[-1], means.loc["residual"]
    keeps = (longest["accuracy"] - by_residual["accuracy"]).round(3) <= 0
    least = f"with {by_residual['segments'][keeps].min():.1f}" if keeps.any() else "with no fewer"
    accuracy, deepest = 100 * longest["accuracy"], longest["segments"]
    return f"by residual, {accuracy:.1f} % {least} of {deepest:g} segments"
