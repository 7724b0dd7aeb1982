"""The table of some runs: columns, footnotes and state."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from phantomgrad_suite.report.baselines import Baselines
from phantomgrad_suite.report.catalogue import BLOCKS, COLUMN_NOTES, NOTES, Entry
from phantomgrad_suite.report.experiments.along_training import measurements
from phantomgrad_suite.report.experiments.lines import Line, lines_of, plain
from phantomgrad_suite.report.experiments.runs import (
    Runs,
    Stat,
    cpu_over_wall,
    group_runs,
    step_in_f,
)
from phantomgrad_suite.report.inputs import SPEED, Curves, PaperNumber
from phantomgrad_suite.report.studies.parts import hardware_label
from phantomgrad_suite.report.table import Block, Cell, Cells, Row, Section, State, Table
from phantomgrad_suite.runs.identity import split_row
from phantomgrad_suite.runs.records import Record, StudyRecord

_MARKS = "‡§¶"
_ALWAYS = {"Best", "Last", "Common (epoch)", "n"}  # columns that are shown though they are empty


def table_of_runs(
    entry: Entry,
    numbers: Sequence[PaperNumber],
    records: Sequence[Record],
    throughput: Sequence[StudyRecord] = (),
    published: Mapping[str, Curves] | None = None,
    baselines: Baselines | None = None,
) -> Table:
    """Return the table with the paper's numbers next to those of our runs.

    ``throughput`` are records of training steps, for this and other tables.
    """
    lines = lines_of(numbers, group_runs(records), baselines or {})
    sections = []
    if lines:
        speeds = {n.row: f"{float(n.value):.1f}×" for n in numbers if n.metric == SPEED}  # noqa: RUF001
        results = _results(lines, speeds, _step_speeds(throughput, lines))
        sections.append(replace(results, notes=(*entry.notes, *results.notes)))
    if any(line.runs for line in lines):
        sections += [*measurements(lines), _cost(lines)]
    return Table(entry, *_state(entry, lines), tuple(sections), published=published or {})


def _state(entry: Entry, lines: Sequence[Line]) -> tuple[State, str]:
    """Return how many rows of the paper, or of all without any of the paper, have full runs."""
    if not any(line.runs for line in lines):
        return State.MISSING, "the paper's numbers only" if lines else ""
    expected = [line for line in lines if line.paper] or [line for line in lines if not line.scale]
    full = [line for line in expected if line.is_full]
    scaled = {line.runs.unscaled_row for line in lines if line.scale and line.runs}
    more = len(scaled & {line.row for line in expected if line not in full})
    elsewhere = entry.data and plain(entry.data) not in {plain(line.dataset) for line in full}
    if scaled and (elsewhere or not full):
        return State.SCALED, "" if elsewhere else f"{more} of {len(expected)} rows"
    if full and elsewhere:
        return State.PARTLY, f"not on {entry.data} yet"
    if len(full) == len(expected):
        return State.MADE, ""
    text = f"{len(full)} of {len(expected)} rows in full"
    text += f", {more} in the {State.SCALED}" if more else ""
    return State.PARTLY if full else State.REDUCED, text


def _results(
    lines: Sequence[Line], speeds: Mapping[str, str], measured: Mapping[str, Mapping[str, str]]
) -> Section:
    """Return the results, with the speeds of the paper by row, and ours by the way of measuring."""
    remarks = dict.fromkeys(line.paper.note for line in lines if line.paper and line.paper.note)
    own = iter(_MARKS)
    marks = {text: "†" if text.startswith("†") else next(own) for text in remarks}

    def cells(line: Line) -> Cells:
        runs, printed = line.runs, speeds.get(line.row, "") if line.paper else ""
        steps = {f"Speed, {where}": found for where, found in measured.items()}
        own = printed or (line.scale and not line.variant)
        return {
            "Data set": line.dataset,
            "Metric": line.metric.heading,
            "Model": line.model,
            "Method": line.name,
            "Params": line.params,
            "Paper": _paper(line, marks),
            "Baseline": str(line.baseline or ""),
            "Best": _stat(runs, "best"),
            "Last": _stat(runs, "last"),
            "Common (epoch)": _stat(runs, "common"),
            "Selected": _stat(runs, "selected"),
            "Searched by": _objective(runs) if runs else "",
            "Speed, paper": printed,
            **{h: found.get(line.row, "") if own else "" for h, found in steps.items()},
            "n": str(runs.n) if runs else "",
        }

    section = _section("", lines, cells, 4)
    found = [f"{mark} Paper: {text.removeprefix(mark).strip()}." for text, mark in marks.items()]
    scaled = [line for line in lines if line.runs and line.runs.scaled]
    edition = [NOTES["scale"].format(title=BLOCKS[line.scale], line=line) for line in scaled]
    notes = *dict.fromkeys(edition), NOTES["statistics"], *section.notes, *found, *_warnings(lines)
    return replace(section, notes=notes)


def _cost(lines: Sequence[Line]) -> Section:
    def cells(line: Line) -> Cells:
        assert line.runs is not None
        mean, memories = line.runs.mean, [record.memory for record in line.records]
        peaks = [memory["peak_bytes"] for memory in memories if memory.get("peak_bytes")]
        kinds = ", ".join(sorted({str(memory.get("kind", "")) for memory in memories}))
        count, step = mean("parameters", "total"), Stat.of(map(step_in_f, line.records))
        busy = Stat.of(map(cpu_over_wall, line.records))
        return {
            "Data set": line.dataset,
            "Method": line.name,
            "Parameters": "" if count is None else f"{count:,.0f}",
            "f / step": _digits(step.mean) if step else "",
            "f / solve": _digits(mean("solver", "evaluations")),
            "Adjoint / solve": _digits(mean("solver", "adjoint_evaluations")),
            "CPU / wall": f"{busy.mean:.2f}" if busy else "",
            "Peak memory": f"{max(peaks) / 2**20:,.0f} MiB ({kinds})" if peaks else "",
        }

    measured = [line for line in lines if line.runs]
    section = _section("Cost", measured, cells, 2)
    hardware = sorted({name for line in measured if line.runs for name in line.runs.hardware})
    return replace(section, notes=(*section.notes, f"Run on: {'; '.join(hardware)}."))


def _section(
    title: str, lines: Sequence[Line], cells: Callable[[Line], Cells], words: int
) -> Section:
    """Return a section with a row for each line, and the notes of its columns."""
    found = [(key, list(members)) for key, members in groupby(lines, lambda line: line.block)]
    blocks = [
        Block(
            tuple(Row(cells(line), line) for line in members),
            _title(key, members) if len(found) > 1 or split_row(key)[0] else "",
            key,
        )
        for key, members in found
    ]
    section = Section.of(title, blocks, words, always=_ALWAYS)
    headings = [column.heading for column in section.columns]
    notes = {h: COLUMN_NOTES.get(re.sub(" on .*", "", h)) for h in headings}
    return replace(section, notes=tuple(f"{h}: {note}" for h, note in notes.items() if note))


def _title(block: str, lines: Sequence[Line]) -> str:
    if not block and not any(line.paper for line in lines):
        return ", ".join(dict.fromkeys(line.dataset for line in lines))
    scale, folder = split_row(block)
    keys = [scale, folder] if scale and folder else [scale or folder]
    title = ", ".join(BLOCKS.get(key, key) for key in keys)
    return title[:1].upper() + title[1:]


def _stat(runs: Runs | None, which: str) -> Cell:
    stat: Stat | None = getattr(runs, which, None)
    if runs is None or stat is None:
        return Cell()
    metric = runs.metric
    text = metric.format(stat.mean)
    text += f" ± {metric.format(stat.std)}" if stat.n > 1 else ""
    text += f" [{stat.n}/{runs.n}]" if stat.n < runs.n else ""
    text += f" ({runs.common_epoch})" if which == "common" else ""
    return Cell(text, stat.mean * metric.scale, stat.std * metric.scale)


def _paper(line: Line, marks: Mapping[str, str]) -> Cell:
    if line.paper is None:
        return Cell()
    value, spread = float(line.paper.value), float(line.paper.spread or 0)
    text = f"{line.paper.text} {marks.get(line.paper.note, '')}".rstrip()
    return Cell(text, value, spread)


def _objective(runs: Runs) -> str:
    name = runs.searched.get("objective", "").replace("/", " ")
    return f"{name} {runs.objective.mean:.4f}" if runs.objective else ""


def _digits(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if value < 1 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def _warnings(lines: Sequence[Line]) -> list[str]:
    found = [NOTES["variant"]] if any(line.variant for line in lines) else []
    found += [NOTES["diverged"]] if any(line.fate for line in lines) else []
    found += [NOTES["untrained"]] if not all(line.trained for line in lines) else []
    runs = [line.runs for line in lines if line.runs]
    stats = [(each.n, stat) for each in runs for stat in (each.best, each.last, each.selected)]
    if any(stat is not None and stat.n < n for n, stat in stats):
        found.append(NOTES["not_finite"])
    for line in lines:
        prefix = f"{line.metric.curve}_at_"
        names = {name for r in line.records for name in r.curves if name.startswith(prefix)}
        for name in sorted(names if line.metric.key == "perplexity" else ()):
            curves = [[v for v in curve if v is not None] for curve in line.curves(name)]
            best = Stat.of(min(curve, default=None) for curve in curves)
            value, length = line.metric.format(best.mean) if best else "—", name[len(prefix) :]
            found.append(NOTES["memory"].format(line=line, value=value, length=length))
    return found


def _step_speeds(
    records: Sequence[StudyRecord], lines: Sequence[Line]
) -> dict[str, dict[str, str]]:
    """Return the speeds relative to the paper's reference, by hardware and row."""
    found: dict[str, dict[str, str]] = {}
    for record in records:
        rows = record.numbers["rows"]
        references = {row["baseline"] for row in rows}
        factors = {
            row["row"]: row["faster"]["step"] if row["baseline"] else 1.0
            for row in rows
            if row["baseline"] or row["row"] in references
        }
        if factors.keys() & {line.row for line in lines if line.paper}:
            speeds = {row: f"{factor:.2f}×" for row, factor in factors.items()}  # noqa: RUF001
            found.setdefault(f"step on {hardware_label(record)}", {}).update(speeds)
    return found
