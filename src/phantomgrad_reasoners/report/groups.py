"""Studies of trained runs by row: the numbers of a row's runs as frames, tables and curves."""

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby

import pandas as pd

from phantomgrad_suite.report.catalogue import FIGURES, Entry
from phantomgrad_suite.report.document import DASH, Section, Table, section
from phantomgrad_suite.report.figures.style import Lines, file_name
from phantomgrad_suite.report.studies.parts import Records
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.records import StudyRecord

_HEADINGS = {
    "set": "Puzzles",
    "puzzles": "Own start",
    "segments": "Segments",
    "starts": "Starts",
    "run": "Run",
    "rule": "Halt",
    "setting": "Setting",
}


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


def frame(group: Records, part: str) -> pd.DataFrame:
    """Return the rows of a part of the numbers of all runs.

    They have a column ``run``, and ``set`` as tables print it.
    """
    try:
        found = [{"run": r.numbers["instance"], **row} for r in group for row in r.numbers[part]]
        sets = {row["set"] for row in found}
    except (KeyError, TypeError) as error:
        name = f"{group[0].row}/{group[0].instance}"
        raise UserError(f"{name} was measured by an earlier version: run it again") from error
    known = "test/known_grids"
    names = {known: "Known grids", "test": "New grids" if known in sets else "Test"}
    rows = pd.DataFrame(found)
    return rows.assign(set=rows["set"].replace(names))


def sections(
    entry: Entry, records: Records, parts: Mapping[str, Callable[[Records], pd.DataFrame]]
) -> Iterator[Section]:
    """Yield the sections of each row of trained runs, made from frames of text.

    The index of a frame becomes the first columns.
    """
    for group in by_row(records):
        facts = {**group[0].setting, "runs": len(group), "n": frame(group, "sets")["n"].iloc[0]}
        for part, make in parts.items():
            title, text = entry.text[part].split("\n")
            title, cells = f"{title_of(group)}: {title}", make(group)
            rows = cells.reset_index().rename(columns=_HEADINGS).astype(str).to_dict("records")
            yield section(title, rows, cells.index.nlevels, text=text.format(**facts))


def mean_of(values: pd.Series) -> str:
    """Return the mean and the spread of shares, in percent."""
    percent = 100 * values
    spread = f" ± {percent.std():.1f}" if len(percent) > 1 else ""
    return f"{percent.mean():.1f}{spread}"


def interval(row: pd.Series) -> str:
    """Return an AUROC with its interval."""
    if pd.isna(row["auroc"]):
        return DASH
    return f"{row['auroc']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"


def curves(rows: pd.DataFrame, point: str) -> pd.DataFrame:
    """Return the points of figures: means over the runs, with the standard error of accuracy.

    Rows have their panel (``row`` and ``column``), ``label`` and ``x``; ``point`` tells the points
    of a curve.
    """
    groups = rows.groupby(["row", "column", "label", point], sort=False)
    y, error = 100 * groups["accuracy"].mean(), 100 * groups["accuracy"].sem()
    points = pd.DataFrame({"x": groups["x"].mean(), "y": y, "low": y - error, "high": y + error})
    return points.droplevel(point).reset_index().assign(family="")


def lines(table: Table, group: Records, found: str, points: pd.DataFrame, x: str = "") -> Lines:
    """Return the figure of a row, named for what its runs or the study have changed too."""
    instances = group[0].numbers["instance"], group[0].instance
    changed = (instance.partition("-")[2] for instance in instances)
    return Lines(
        file_name(table.key, group[0].numbers["row"], *changed),
        FIGURES[table.key],
        f"{table.entry.label}, {title_of(group)}: {found}",
        points,
        x,
        "mean over runs; band: ± one standard error" if len(group) > 1 else "",
    )
