"""The table of some runs: columns, footnotes and state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from phantomgrad_suite.report.catalogue import BLOCKS, COLUMN_NOTES, NOTES, Entry
from phantomgrad_suite.report.experiments.lines import Line, lines_by_block, plain
from phantomgrad_suite.report.experiments.runs import Runs, Stat, group_runs, objective_of
from phantomgrad_suite.report.inputs import Curves, PaperNumber
from phantomgrad_suite.report.studies.parts import place
from phantomgrad_suite.report.table import Block, Cell, Row, Section, State, Table
from phantomgrad_suite.runs.formats import duration
from phantomgrad_suite.runs.records import Record, StudyRecord

_MARKS = "‡§¶"

Blocks = Mapping[str, Sequence[Line]]
Cells = Mapping[str, Cell | str]


def table_of_runs(
    entry: Entry,
    numbers: Sequence[PaperNumber],
    records: Sequence[Record],
    throughput: Sequence[StudyRecord] = (),
    published: Mapping[str, Curves] | None = None,
) -> Table:
    """Return the table with the paper's numbers next to those of our runs.

    ``throughput`` are records of training steps, for this and other tables.
    """
    blocks = lines_by_block(numbers, group_runs(records))
    lines = [line for members in blocks.values() for line in members]
    sections = [_results(blocks, lines, _step_speeds(throughput, lines))] if lines else []
    measured = {key: mine for key, x in blocks.items() if (mine := [y for y in x if y.runs])}
    if measured:
        sections.append(_cost(measured))
    return Table(entry, *_state(entry, lines), tuple(sections), published=published or {})


def _state(entry: Entry, lines: Sequence[Line]) -> tuple[State, str]:
    """Return how many rows of the paper, or of all without any of the paper, have full runs."""
    if not any(line.runs for line in lines):
        return State.MISSING, "the paper's numbers only" if lines else ""
    expected = [line for line in lines if line.paper] or lines
    full = [line for line in expected if line.is_full]
    if entry.data and full and plain(entry.data) not in {plain(line.dataset) for line in full}:
        return State.PARTLY, f"not on {entry.data} yet"
    if len(full) == len(expected):
        return State.MADE, ""
    return State.PARTLY if full else State.REDUCED, f"{len(full)} of {len(expected)} rows in full"


def _results(blocks: Blocks, lines: Sequence[Line], speeds: Sequence[_StepSpeeds]) -> Section:
    remarks = dict.fromkeys(line.paper.note for line in lines if line.paper and line.paper.note)
    own = iter(_MARKS)
    marks = {text: "†" if text.startswith("†") else next(own) for text in remarks}

    def cells(line: Line) -> Cells:
        runs = line.runs
        return {
            "Data set": line.dataset,
            "Metric": line.metric.heading,
            "Model": line.model,
            "Method": line.name,
            "Params": line.params,
            "Paper": _paper(line, marks),
            "Best": _stat(runs, "best"),
            "Last": _stat(runs, "last"),
            "Common (epoch)": _stat(runs, "common"),
            "Selected": _stat(runs, "selected"),
            "Searched by": _objective(runs) if runs else "",
            "Speed, paper": _factor(line.paper_speed, 1),
            "Speed": _factor(line.speed, 1),
            **{speed.heading: _factor(speed.of(line), 2) for speed in speeds},
            "n": str(runs.n) if runs else "",
        }

    optional = {"Params", "Paper", "Selected", "Searched by", "Speed, paper", "Speed"}
    section = _section("", blocks, cells, 4, optional | {speed.heading for speed in speeds})
    shown = [column.heading for column in section.columns]
    notes = [NOTES["statistics"], *section.notes]
    notes += [speed.note for speed in speeds if speed.heading in shown]
    notes += [_paper_note(lines, text, mark) for text, mark in marks.items()]
    return replace(section, notes=(*notes, *_warnings(lines)))


def _cost(blocks: Blocks) -> Section:
    def cells(line: Line) -> Cells:
        assert line.runs is not None
        mean, memories = line.runs.mean, [record.memory for record in line.runs.records]
        totals = [record.seconds.get("total") for record in line.runs.records]
        peaks = [memory["peak_bytes"] for memory in memories if memory.get("peak_bytes")]
        kinds = ", ".join(sorted({str(memory.get("kind", "")) for memory in memories}))
        count = mean("parameters", "total")
        return {
            "Data set": line.dataset,
            "Method": line.name,
            "Parameters": "" if count is None else f"{count:,.0f}",
            "s / epoch": _digits(mean("seconds", "epoch")),
            "CPU s / epoch": _digits(mean("seconds", "epoch_cpu")),
            "All runs": "" if None in totals else duration(sum(t for t in totals if t is not None)),
            "f / solve": _digits(mean("solver", "evaluations")),
            "Adjoint / solve": _digits(mean("solver", "adjoint_evaluations")),
            "Peak memory": f"{max(peaks) / 2**20:,.0f} MiB ({kinds})" if peaks else "",
        }

    section = _section("Cost", blocks, cells, 2, {"CPU s / epoch", "Adjoint / solve"})
    runs = [line.runs for lines in blocks.values() for line in lines if line.runs]
    hardware = sorted(set[str]().union(*(each.hardware for each in runs)))
    return replace(section, notes=(*section.notes, f"Run on: {'; '.join(hardware)}."))


def _section(
    title: str, blocks: Blocks, cells: Callable[[Line], Cells], words: int, optional: set[str]
) -> Section:
    """Return a section with a row for each line, and the notes of its columns."""

    def row(line: Line) -> Row:
        found = cells(line).items()
        return Row({h: Cell(cell) if isinstance(cell, str) else cell for h, cell in found}, line)

    several = len(blocks) > 1
    made = [
        Block(tuple(map(row, lines)), BLOCKS.get(key, key) if several else "", key)
        for key, lines in blocks.items()
    ]
    section = Section.of_blocks(title, made, words, optional)
    headings = [c.heading for c in section.columns if c.heading in COLUMN_NOTES]
    return replace(section, notes=tuple(f"{h}: {COLUMN_NOTES[h]}" for h in headings))


def _stat(runs: Runs | None, which: str) -> Cell:
    stat: Stat | None = getattr(runs, which, None)
    if runs is None or stat is None:
        return Cell()
    metric = runs.metric
    text = metric.format(stat.mean)
    text += f" ± {metric.format(stat.std)}" if stat.n > 1 else ""
    text += f" [{stat.n}/{runs.n}]" if stat.n < runs.n else ""
    text += f" ({runs.common_epoch})" if which == "common" else ""
    return Cell(text, stat.mean * metric.scale, stat.std * metric.scale, stat.n)


def _paper(line: Line, marks: Mapping[str, str]) -> Cell:
    if line.paper is None:
        return Cell()
    value, spread = float(line.paper.value), float(line.paper.spread or 0)
    return Cell(line.paper.text, value, spread, mark=marks.get(line.paper.note, ""))


def _objective(runs: Runs) -> str:
    """Return the objective of a search and its mean over the runs."""
    found = [objective for record in runs.records if (objective := objective_of(record))]
    stat = Stat.of(objective.value for objective in found)
    return f"{found[0].curve.replace('/', ' ')} {stat.mean:.4f}" if stat else ""


def _factor(value: float | None, decimals: int) -> str:
    return f"{value:.{decimals}f}×" if value else ""  # noqa: RUF001


def _digits(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if value < 1 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def _paper_note(lines: Sequence[Line], remark: str, mark: str) -> str:
    """Return a remark of the paper; one on its best run is answered with ours."""
    text = f"{mark} Paper: {remark.removeprefix(mark).strip()}."
    ours = []
    for line in lines:
        if line.paper and line.paper.note == remark and line.runs:
            best = max if line.metric.higher_is_better else min
            values = [r.result.best for r in line.runs.records if r.result.best is not None]
            ours += [f"{line.name} {line.metric.format(best(values))}"] if values else []
    if remark.startswith("best of") and ours:
        text += f" The best of our runs: {', '.join(ours)}."
    return text


def _warnings(lines: Sequence[Line]) -> list[str]:
    found = [NOTES["variant"]] if any(line.variant for line in lines) else []
    shared = dict.fromkeys((line.dataset, line.shared) for line in lines if line.shared)
    found += [f"{dataset}, reduced: {reduction}." for dataset, reduction in shared]
    measured = [(line, line.runs) for line in lines if line.runs]
    stats = [
        (runs.n, stat) for _, runs in measured for stat in (runs.best, runs.last, runs.selected)
    ]
    if any(stat is not None and stat.n < n for n, stat in stats):
        found.append(NOTES["not_finite"])
    for line, runs in measured:
        for length, value in _at_other_memories(runs).items():
            text = line.metric.format(value)
            found.append(NOTES["memory"].format(line=line, value=text, length=length))
    for line, runs in measured:
        if epochs := _collapses(runs):
            known = {"line": line, "m": len(epochs), "n": runs.n}
            found.append(NOTES["collapsed"].format(**known, epochs=", ".join(map(str, epochs))))
    return found


def _at_other_memories(runs: Runs) -> dict[str, float]:
    """Return the mean over runs of the best evaluation, by the length of the memory."""
    found: dict[str, list[float]] = {}
    for record in runs.records:
        for name, curve in record.curves.items():
            known = [value for value in curve if value is not None]
            if name.startswith(f"{runs.metric.curve}_at_") and known:
                found.setdefault(name.rsplit("_", 1)[1], []).append(min(known))
    return {length: sum(best) / len(best) for length, best in found.items()}


def _collapses(runs: Runs) -> list[int]:
    """Return, for each run that collapsed, the first epoch with a sign of it."""
    found = []
    for record in runs.records:
        signs = [curve for name, curve in record.curves.items() if name.startswith("collapse/")]
        marked = [curve.index(1) + 1 for curve in signs if 1 in curve]
        found += [min(marked)] if marked else []
    return found


@dataclass(frozen=True)
class _StepSpeeds:
    """The speeds of rows relative to the paper's reference, by row, and their reductions."""

    heading: str
    factors: dict[str, float] = field(default_factory=dict)
    changes: list[str] = field(default_factory=list)

    @property
    def note(self) -> str:
        """The footnote of its column."""
        changes = "; ".join(dict.fromkeys(self.changes))
        reduced = NOTES["step_speed_reduced"].format(changes) if changes else ""
        return f"{self.heading}: {NOTES['step_speed']}{reduced}."

    def of(self, line: Line) -> float | None:
        """Return the speed of a line that has one in the paper."""
        return self.factors.get(line.row) if line.paper_speed else None


def _step_speeds(records: Sequence[StudyRecord], lines: Sequence[Line]) -> list[_StepSpeeds]:
    """Return the speeds of all records that measured some of ``lines``, one for each hardware."""
    found: dict[str, _StepSpeeds] = {}
    for record in records:
        rows = record.numbers["rows"]
        references = {row["baseline"] for row in rows}
        factors = {
            row.get("stands_for") or row["row"]: row["faster"]["step"] if row["baseline"] else 1.0
            for row in rows
            if row["baseline"] or row["row"] in references
        }
        if factors.keys() & {line.row for line in lines}:
            heading = f"Speed, step on {place(record)}"
            speeds = found.setdefault(heading, _StepSpeeds(heading))
            speeds.factors.update(factors)
            speeds.changes.extend([", ".join(record.changes)] if record.changes else [])
    return list(found.values())
