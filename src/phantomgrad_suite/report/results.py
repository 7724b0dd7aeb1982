"""The table of some runs: results, what was measured along training, costs, and footnotes."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from phantomgrad_suite.report.baselines import Baselines
from phantomgrad_suite.report.catalogue import BLOCKS, COLUMN_NOTES, NOTES, Entry
from phantomgrad_suite.report.document import Section, State, Table, section
from phantomgrad_suite.report.experiments import (
    SCORES,
    experiments_of,
    kept,
    metric_of_line,
    plain,
)
from phantomgrad_suite.report.frame import by_epoch, curves_of, estimators_of, frame_of
from phantomgrad_suite.report.inputs import SPEED, PaperNumber
from phantomgrad_suite.report.studies.parts import hardware_label
from phantomgrad_suite.runs.identity import split_row
from phantomgrad_suite.runs.records import Record, StudyRecord

STEP = "precision/step"
RADII = {
    "precision/spectral_radius/F": "spectral radius of F",
    "precision/spectral_radius/F_damped": "that of the damped map",
}
"""The names of spectral radii, by curve."""

_RESIDUAL = "precision/exact/adjoint_residual"
_LARGEST = 0.01  # residual of an adjoint solve that counts as exact
_MARKS = "‡§¶"
_ALWAYS = {"Best", "Last", "Common (epoch)", "n"}  # columns that are shown though they are empty


def table_of_runs(
    entry: Entry,
    numbers: Sequence[PaperNumber],
    records: Sequence[Record],
    throughput: Sequence[StudyRecord] = (),
    baselines: Baselines | None = None,
) -> Table:
    """Return the table with the paper's numbers next to those of our runs.

    ``throughput`` are records of training steps, for this and other tables.
    """
    runs = frame_of(records)
    lines = experiments_of(runs, numbers, baselines or {})
    sections = []
    if len(lines):
        speeds = {n.row: f"{float(n.value):.1f}×" for n in numbers if n.metric == SPEED}  # noqa: RUF001
        sections.append(_results(entry, lines, runs, speeds, _step_speeds(throughput, lines)))
    if len(runs):
        sections += [*_along_training(lines, runs), _cost(lines, runs)]
    state = _state(entry, lines)
    return Table(entry, *state, tuple(sections), lines, runs)


def records_of(line: Any, runs: pd.DataFrame) -> list[Record]:
    """Return the records of an experiment's runs that did not diverge."""
    if not line.n:
        return []
    return list(runs.loc[(runs["experiment"] == line.experiment) & ~runs["diverged"], "record"])


def _state(entry: Entry, lines: pd.DataFrame) -> tuple[State, str]:
    """Return how many rows of the paper, or of all without any of the paper, have full runs."""
    if not lines["n"].any():
        return State.MISSING, "the paper's numbers only" if len(lines) else ""
    expected = lines[lines["paper"] != ""] if lines["paper"].any() else lines[lines["scale"] == ""]
    full = expected[(expected["n"] > 0) & (expected["protocol"] == "full")]
    scaled = set(lines.loc[lines["scale"] != "", "unscaled"])
    more = len(scaled & (set(expected["row"]) - set(full["row"])))
    elsewhere = entry.data and plain(entry.data) not in {*map(plain, full["dataset"])}
    if scaled and (elsewhere or full.empty):
        return State.SCALED, "" if elsewhere else f"{more} of {len(expected)} rows"
    if len(full) and elsewhere:
        return State.PARTLY, f"not on {entry.data} yet"
    if len(full) == len(expected):
        return State.MADE, ""
    text = f"{len(full)} of {len(expected)} rows in full"
    text += f", {more} in the {State.SCALED}" if more else ""
    return State.PARTLY if len(full) else State.REDUCED, text


def _results(
    entry: Entry,
    lines: pd.DataFrame,
    runs: pd.DataFrame,
    speeds: Mapping[str, str],
    measured: Mapping[str, Mapping[str, str]],
) -> Section:
    """Return the results, with the speeds of the paper by row, and ours by the way of measuring."""
    remarks, own = dict.fromkeys(filter(None, lines["paper_note"])), iter(_MARKS)
    marks = {text: "†" if text.startswith("†") else next(own) for text in remarks}

    def cells(line: Any) -> dict[str, str]:
        printed = speeds.get(line.row, "") if line.paper else ""
        shown = printed or (line.scale and not line.variant)
        return {
            "Data set": line.dataset,
            "Metric": metric_of_line(line).heading,
            "Model": line.model,
            "Method": line.name,
            "Params": line.params,
            "Paper": f"{line.paper} {marks.get(line.paper_note, '')}".rstrip(),
            "Baseline": line.baseline,
            "Best": score_text(line, "best"),
            "Last": score_text(line, "last"),
            "Common (epoch)": score_text(line, "common"),
            "Selected": score_text(line, "selected"),
            "Searched by": _objective(line),
            "Speed, paper": printed,
            **{
                f"Speed, {where}": found.get(line.row, "") if shown else ""
                for where, found in measured.items()
            },
            "n": str(line.n or ""),
        }

    found = [f"{mark} Paper: {text.removeprefix(mark).strip()}." for text, mark in marks.items()]
    edition = dict.fromkeys(
        NOTES["scale"].format(title=BLOCKS[line.scale], line=line)
        for line in lines.itertuples()
        if line.scaled
    )
    before, after = [*entry.notes, *edition, NOTES["statistics"]], [*found, *_warnings(lines, runs)]
    return _section("", lines, cells, 4, before, after)


def score_text(line: Any, score: str) -> str:
    """Return mean and deviation of a score as they are printed, with how many runs have it."""
    n = getattr(line, f"{score}_n")
    if not n:
        return ""
    metric = metric_of_line(line)
    text = metric.format(getattr(line, score))
    text += f" ± {metric.format(getattr(line, f'{score}_std'))}" if n > 1 else ""
    text += f" [{n}/{line.n}]" if n < line.n else ""
    return text + (f" ({line.common_epoch})" if score == "common" else "")


def _objective(line: Any) -> str:
    if not line.objective_n:
        return ""
    return f"{line.searched.replace('/', ' ')} {line.objective:.4f}"


def measured_along(lines: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Return the experiments that measured spectral radii along their training."""
    return kept(lines, lambda line: any(curves_of(records_of(line, runs), name) for name in RADII))


def _along_training(lines: pd.DataFrame, runs: pd.DataFrame) -> Iterator[Section]:
    """Yield a section with a block for each data set, and a column for each experiment."""
    measured = measured_along(lines, runs)
    twins = measured.duplicated(["block", "dataset", "name"], keep=False)
    names = [
        f"along {line.name}" + (f" ({line.row.split('/')[-1]})" if twin else "")
        for line, twin in zip(measured.itertuples(), twins, strict=True)
    ]
    rows, blocks = [], []
    for (_, dataset), group in measured.assign(column=names).groupby(
        ["block", "dataset"], sort=False
    ):
        records = {line.column: records_of(line, runs) for line in group.itertuples()}
        for label, curve in _measured_curves([run for each in records.values() for run in each]):
            found = {column: _summary(records.get(column, []), curve) for column in names}
            rows.append({"Measured": label, **found})
            blocks.append(dataset)
    if rows:
        note = NOTES["measured"].format(residual=_LARGEST)
        yield section("Along training", rows, blocks=blocks, notes=[note])


def _measured_curves(records: Sequence[Record]) -> list[tuple[str, str]]:
    """Return labels and names of the curves of cosines, then of radii."""
    labels = dict[str, str]()
    for record in records:
        names = estimators_of(record)
        for curve in record.curves:
            if curve.startswith("precision/") and curve.endswith("/cosine"):
                name = curve.split("/")[1]
                labels[curve] = f"cosine of {' '.join(names.get(name, ('', name))).strip()}"
    cosines = sorted((label, curve) for curve, label in labels.items())
    kept = [(RADII[name], name) for name in RADII if curves_of(records, name)]
    return cosines + kept


def _summary(records: Sequence[Record], name: str) -> str:
    """Return mean, least and largest value over runs and steps with an exact gradient."""
    pairs = [
        pair
        for run in records
        for pair in zip(run.curves.get(name, ()), run.curves.get(_RESIDUAL, ()), strict=False)
    ]
    found = pd.DataFrame(pairs, columns=["value", "residual"], dtype=float).dropna()
    values = found.loc[found["residual"] <= _LARGEST, "value"]
    if values.empty:
        return ""
    return f"{values.mean():.3f} ({values.min():.3f} to {values.max():.3f})"


def _cost(lines: pd.DataFrame, runs: pd.DataFrame) -> Section:
    def cells(line: Any) -> dict[str, str]:
        kinds = ", ".join(sorted({run.memory.get("kind", "") for run in records_of(line, runs)}))
        peak, busy = line.peak_bytes, line.cpu_over_wall
        return {
            "Data set": line.dataset,
            "Method": line.name,
            "Parameters": "" if pd.isna(line.parameters) else f"{line.parameters:,.0f}",
            "f / step": _digits(line.step_in_f),
            "f / solve": _digits(line.evaluations),
            "Adjoint / solve": _digits(line.adjoint_evaluations),
            "CPU / wall": "" if pd.isna(busy) else f"{busy:.2f}",
            "Peak memory": "" if pd.isna(peak) else f"{peak / 2**20:,.0f} MiB ({kinds})",
        }

    hardware = f"Run on: {'; '.join(sorted(runs['hardware'].unique()))}."
    return _section("Cost", lines[lines["n"] > 0], cells, 2, (), [hardware])


def _section(
    title: str,
    lines: pd.DataFrame,
    cells: Callable[[Any], dict[str, str]],
    words: int,
    before: Sequence[str],
    after: Sequence[str],
) -> Section:
    """Return a section with a row for each line, and the notes of its columns between others."""
    titles = block_titles(lines)
    rows = [cells(line) for line in lines.itertuples()]
    blocks = [titles[block] for block in lines["block"]]
    found = section(title, rows, words, blocks=blocks, always=_ALWAYS)
    notes = {h: COLUMN_NOTES.get(re.sub(" on .*", "", h)) for h in found.frame}
    middle = [f"{heading}: {note}" for heading, note in notes.items() if note]
    return Section(title, "", found.frame, found.words, (*before, *middle, *after))


def block_titles(lines: pd.DataFrame) -> dict[str, str]:
    """Return the titles of the blocks of a table; a single one needs none."""
    titles = {}
    for block, members in lines.groupby("block", sort=False):
        scale, folder = split_row(block)
        keys = [scale, folder] if scale and folder else [scale or folder]
        title = ", ".join(BLOCKS.get(key, key) for key in keys)
        if not block and not members["paper"].any():
            title = ", ".join(members["dataset"].unique())
        several = lines["block"].nunique() > 1 or scale
        titles[block] = title[:1].upper() + title[1:] if several else ""
    return titles


def _digits(value: float) -> str:
    if pd.isna(value):
        return ""
    return f"{value:.3f}" if value < 1 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def _warnings(lines: pd.DataFrame, runs: pd.DataFrame) -> list[str]:
    incomplete = any((lines[f"{score}_n"].between(1, lines["n"] - 1)).any() for score in SCORES[:3])
    found = [NOTES["variant"]] if (lines["variant"] != "").any() else []
    found += [NOTES["diverged"]] if (lines["fate"] != "").any() else []
    found += [NOTES["untrained"]] if not lines["trained"].all() else []
    found += [NOTES["not_finite"]] if incomplete else []
    for line in lines[lines["metric"] == "perplexity"].itertuples():
        metric, records = metric_of_line(line), records_of(line, runs)
        prefix = f"{metric.curve}_at_"
        names = {name for run in records for name in run.curves if name.startswith(prefix)}
        for name in sorted(names):
            best = by_epoch(curves_of(records, name)).min().mean()
            value, length = "—" if pd.isna(best) else metric.format(best), name[len(prefix) :]
            found.append(NOTES["memory"].format(line=line, value=value, length=length))
    return found


def _step_speeds(records: Sequence[StudyRecord], lines: pd.DataFrame) -> dict[str, dict[str, str]]:
    """Return the speeds relative to the paper's reference, by hardware and row."""
    printed, found = set(lines.loc[lines["paper"] != "", "row"]), dict[str, dict[str, str]]()
    for record in records:
        rows = record.numbers["rows"]
        references = {row["baseline"] for row in rows}
        factors = {
            row["row"]: row["faster"]["step"] if row["baseline"] else 1.0
            for row in rows
            if row["baseline"] or row["row"] in references
        }
        if factors.keys() & printed:
            speeds = {row: f"{factor:.2f}×" for row, factor in factors.items()}  # noqa: RUF001
            found.setdefault(f"step on {hardware_label(record)}", {}).update(speeds)
    return found
