"""Test-time scaling: tables and a figure of depth, of breadth, and of what the residual tells."""

from collections.abc import Iterator, Sequence

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
from phantomgrad_suite.report.document import Section, Table
from phantomgrad_suite.report.figures.style import Plot
from phantomgrad_suite.report.studies.parts import Records

_RULES = {
    "single": "One start (mean)",
    "vote": "Majority",
    "logits": "Residual of logits",
    "state": "Residual of state",
    "any": "Any right",
}
"""How one of several answers is chosen, and the bounds: their headings."""


def tables(entry: Entry, records: Records) -> Iterator[Section]:
    """Yield three sections for each row of trained runs."""
    yield from sections(entry, records, {"depth": _depth, "breadth": _breadth, "errors": _errors})


def _depth(group: Records) -> pd.DataFrame:
    n, rows = group[0].numbers["segments"], frame(group, "depth")
    shown = [1, 2, *range(n, rows["segments"].max() + 1, n)]
    headings = {s: f"{s} segment{'s' * (s > 1)}{' (training)' * (s == n)}" for s in shown}
    rows = rows.assign(segments=rows["segments"].map(headings)).dropna(subset="segments")
    lost = frame(group, "sets").assign(segments="Lost").rename(columns={"lost": "accuracy"})
    return _rates(pd.concat([rows, lost]), ["set"], "segments")


def _breadth(group: Records) -> pd.DataFrame:
    rows = _ends(group, "breadth").replace({"rule": _RULES})
    return _rates(rows, ["set", "segments", "starts"], "rule")


def _errors(group: Records) -> pd.DataFrame:
    rows = _ends(group, "errors").merge(frame(group, "sets")[["run", "set", "n"]])
    unsolved = rows["unsolved"].astype(str) + " of " + rows["n"].astype(str)
    rows = rows.assign(
        Unsolved=unsolved, kind="AUROC, " + rows["kind"], text=rows.apply(interval, axis=1)
    )
    index = ["run", "set", "segments", "Unsolved"]
    return rows.pivot_table("text", index, "kind", aggfunc="first", sort=False)


def _ends(group: Records, part: str) -> pd.DataFrame:
    """Return the rows after the segments of training, and after the largest number of them."""
    n, rows = group[0].numbers["segments"], frame(group, part)
    return rows[rows["segments"].isin([n, n * group[0].setting["depth"]])]


def _rates(rows: pd.DataFrame, by: Sequence[str], columns: str) -> pd.DataFrame:
    """Return accuracies over the runs as text, in a column for each value of ``columns``."""
    return rows.pivot_table("accuracy", [*by], columns, aggfunc=mean_of, sort=False)


def figures(table: Table) -> Iterator[Plot]:
    """Yield accuracy by segments and by starts, for each row of trained runs."""
    for group in by_row(table.studies):
        yield lines(table, group, _solved(group), _points(group))


def _solved(group: Records) -> str:
    """Return the accuracy on the first test set at the depth of training, and at the largest."""
    rows = _ends(group, "depth")
    rows = rows[rows["set"] == rows["set"].iloc[0]]
    found = 100 * rows.groupby("segments")["accuracy"].mean()
    return ", ".join(f"{accuracy:.1f} % solved with {n} segments" for n, accuracy in found.items())


def _points(group: Records) -> pd.DataFrame:
    """Return a row of panels for each test set: by segment, and by starts at both depths."""
    depth, breadth = frame(group, "depth"), _ends(group, "breadth")
    depth = depth.assign(label="the model's own start", column="segments", x=depth["segments"])
    breadth = breadth.assign(
        label=breadth["rule"].map(_RULES).str.lower(),
        column="starts, " + breadth["segments"].astype(str) + " segments",
        x=breadth["starts"],
    )
    rows = pd.concat([depth, breadth])
    return curves(rows.assign(row=rows["set"].str.lower() + "\nexact accuracy (%)"), "x")
