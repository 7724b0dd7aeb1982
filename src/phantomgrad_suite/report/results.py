"""The table of some runs: results, what was measured along training, costs, and footnotes."""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import pandas as pd

from phantomgrad_suite.report.baselines import Baselines
from phantomgrad_suite.report.catalogue import BLOCKS, COLUMN_NOTES, NOTES, Entry
from phantomgrad_suite.report.document import Section, Table, section
from phantomgrad_suite.report.experiments import SCORES, experiments_of, metric_of_line
from phantomgrad_suite.report.frame import by_epoch, curves_of, estimators_of, frame_of
from phantomgrad_suite.report.inputs import PaperNumber
from phantomgrad_suite.report.studies.parts import hardware_label
from phantomgrad_suite.runs.identity import split_row
from phantomgrad_suite.runs.records import Record, StudyRecord

STEP = "precision/step"
_RADII = {
    "precision/spectral_radius/F": "spectral radius of F",
    "precision/spectral_radius/F_damped": "that of the damped map",
}
_RESIDUAL = "precision/exact/adjoint_residual"
_LARGEST = 0.01  # residual of an adjoint solve that counts as exact
_ALWAYS = {"Best", "Last", "n"}  # columns that are shown though they are empty
Speeds = Mapping[str, Mapping[str, str]]
"""By the heading of a column, how many times faster each row is."""


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
        sections.append(_results(entry, lines, runs, _speeds(numbers, throughput, lines)))
    if len(runs):
        sections += [*_along_training(lines, runs), _cost(lines, runs)]
    return Table(entry, tuple(sections), lines, runs)


def records_of(line: Any, runs: pd.DataFrame) -> list[Record]:
    """Return the records of an experiment's runs that did not diverge."""
    if not line.n:
        return []
    return list(runs.loc[(runs["experiment"] == line.experiment) & ~runs["diverged"], "record"])


def _marks() -> Iterator[str]:
    """Yield the marks of footnotes, doubled when they are used up."""
    return (mark * times for times in itertools.count(1) for mark in "‡§¶")


def _results(entry: Entry, lines: pd.DataFrame, runs: pd.DataFrame, speeds: Speeds) -> Section:
    remarks, own = dict.fromkeys(filter(None, lines["paper_note"])), _marks()
    marks = {text: "†" if text.startswith("†") else next(own) for text in remarks}

    def cells(line: Any) -> dict[str, str]:
        timed = line.paper and line.row in speeds["Speed, paper"]
        searched = f"{line.searched.replace('/', ' ')} {line.objective:.4f}"
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
            "Selected": score_text(line, "selected"),
            "Searched by": searched if line.objective_n else "",
            **{name: found.get(line.row, "") if timed else "" for name, found in speeds.items()},
            "n": str(line.n or ""),
        }

    found = [f"{mark} Paper: {text.removeprefix(mark).strip()}." for text, mark in marks.items()]
    titles = block_titles(lines)
    places = [dict.fromkeys((titles[x.block], x.dataset)) for x in lines.itertuples()]
    of_all = dict.fromkeys(
        NOTES["shared"].format(place=", ".join(filter(None, place)), line=line)
        for place, line in zip(places, lines.itertuples(), strict=True)
        if line.shared
    )
    edition = dict.fromkeys(
        NOTES["scale"].format(title=BLOCKS[line.scale], line=line)
        for line in lines.itertuples()
        if line.scaled
    )
    before, after = (
        [*entry.notes, *edition, *of_all, NOTES["statistics"]],
        [*found, *_warnings(lines, runs)],
    )
    return _section("", lines, cells, 4, before, after)


def _speeds(
    numbers: Sequence[PaperNumber], records: Sequence[StudyRecord], lines: pd.DataFrame
) -> Speeds:
    """Return the speeds of the paper, and by hardware ours relative to its reference."""
    printed = {n.row: f"{float(n.speed):.1f}×" for n in numbers if n.speed}  # noqa: RUF001
    found: dict[str, dict[str, str]] = {"Speed, paper": printed}
    for record in records:
        rows = record.numbers["rows"]
        references = {row["baseline"] for row in rows}
        factors = {
            row["row"]: row["faster"]["step"] if row["baseline"] else 1.0
            for row in rows
            if row["baseline"] or row["row"] in references
        }
        if factors.keys() & {*lines.loc[lines["paper"] != "", "row"]}:
            column = found.setdefault(f"Speed, step on {hardware_label(record)}", {})
            column |= {row: f"{factor:.2f}×" for row, factor in factors.items()}  # noqa: RUF001
    return found


def score_text(line: Any, score: str) -> str:
    """Return mean and deviation of a score as they are printed, with how many runs have it."""
    n = getattr(line, f"{score}_n")
    if not n:
        return ""
    metric = metric_of_line(line)
    text = metric.format(getattr(line, score))
    text += f" ± {metric.format(getattr(line, f'{score}_std'))}" if n > 1 else ""
    return text + _of_fewer(n, line)


def _of_fewer(n: int, line: Any) -> str:
    """Return the mark of a mean over fewer runs than an experiment has."""
    return f" [{n}/{line.n}]" if 0 < n < line.n else ""


def measured_along(lines: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Return the experiments that measured spectral radii along their training."""
    measured = [any(curves_of(records_of(x, runs), n) for n in _RADII) for x in lines.itertuples()]
    return lines[np.array(measured, dtype=bool)]


def _along_training(lines: pd.DataFrame, runs: pd.DataFrame) -> Iterator[Section]:
    """Yield a section for each data set, with a column for each experiment, then a note."""
    measured = measured_along(lines, runs)
    twins = measured.duplicated(["block", "dataset", "name"], keep=False)
    leaves = " (" + measured["row"].str.split("/").str[-1] + ")"
    measured = measured.assign(column="along " + measured["name"] + leaves.where(twins, ""))
    for (_, dataset), group in measured.groupby(["block", "dataset"], sort=False):
        columns = {x.column: dict(_summaries(records_of(x, runs))) for x in group.itertuples()}
        found = pd.DataFrame(columns).fillna("").rename_axis("Measured").reset_index()
        yield section(f"Along training, {dataset}", found.to_dict("records"))
    if len(measured):
        yield Section(notes=(NOTES["measured"].format(residual=_LARGEST),))


def _summaries(records: Sequence[Record]) -> Iterator[tuple[str, str]]:
    """Yield mean, least and largest value of each cosine and radius that runs have measured.

    They are over runs and steps, those of cosines over steps with an exact gradient.
    """
    estimators = sorted(estimators_of(records[0]).items(), key=itemgetter(1))
    labels = {f"precision/{key}/cosine": f"cosine of {found.name}" for key, found in estimators}
    for curve, label in {**labels, **_RADII}.items():
        part = _measured if curve in _RADII else exact_part
        v = by_epoch([part(run, curve) for run in records]).stack().dropna()
        if len(v):
            yield label, f"{v.mean():.3f} ({v.min():.3f} to {v.max():.3f})"


def _measured(record: Record, name: str) -> list[float | None]:
    return list(record.curves.get(name, []))


def exact_part(record: Record, name: str) -> list[float | None]:
    """Return a curve of a run, with ``None`` where the exact gradient was not found."""
    values, residuals = (record.curves.get(curve, []) for curve in (name, _RESIDUAL))
    pairs = zip(values, residuals, strict=False)
    return [v if r is not None and r <= _LARGEST else None for v, r in pairs]


def _cost(lines: pd.DataFrame, runs: pd.DataFrame) -> Section:
    measured = lines[lines["n"] > 0]
    several = measured["model"].nunique() > 1

    def cells(line: Any) -> dict[str, str]:
        kinds = ", ".join(sorted({run.memory.get("kind", "") for run in records_of(line, runs)}))
        peak = line.peak_bytes
        return {
            "Data set": line.dataset,
            "Model": line.model if several else "",
            "Method": line.name,
            "f / step": _digits(line.step_in_f) + _of_fewer(line.step_in_f_n, line),
            "f / solve": _digits(line.evaluations),
            "Adjoint / solve": _digits(line.adjoint_evaluations),
            "Peak memory": "" if pd.isna(peak) else f"{peak / 2**20:,.0f} MiB ({kinds})",
        }

    hardware = f"Run on: {'; '.join(sorted(runs['hardware'].unique()))}."
    return _section("Cost", measured, cells, 3, (), [hardware])


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


def _warnings(lines: pd.DataFrame, runs: pd.DataFrame) -> Iterator[str]:
    """Yield the notes that some experiments need."""
    incomplete = any((lines[f"{score}_n"].between(1, lines["n"] - 1)).any() for score in SCORES)
    facts = {
        "variant": (lines["variant"] != lines["shared"]).any(),
        "diverged": (lines["fate"] != "").any(),
        "untrained": not lines["trained"].all(),
        "not_finite": incomplete,
    }
    yield from (NOTES[name] for name, is_so in facts.items() if is_so)
    for line in lines[lines["metric"] == "perplexity"].itertuples():
        metric, records = metric_of_line(line), records_of(line, runs)
        for length in records[0].config["task"].get("other_memories", ()) if records else ():
            best = by_epoch(curves_of(records, f"{metric.curve}_at_{length}")).min().mean()
            value = "—" if pd.isna(best) else metric.format(best)
            yield NOTES["memory"].format(line=line, value=value, length=length)
    if lines["objective_n"].any():
        yield NOTES["chosen"].format(method=_chosen(lines))


def _chosen(lines: pd.DataFrame) -> str:
    """Return the trial that validation data choose, of those with as many runs as any."""
    trials = lines[lines["objective_n"] == lines["objective_n"].max()]
    lowest = (trials["direction"] == "minimize").all()
    order = trials.sort_values("objective", ascending=bool(lowest), kind="stable")
    return str(order["method"].iloc[0])
