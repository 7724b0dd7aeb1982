"""The table of some runs: columns, footnotes and status."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from phantomgrad_suite.report.catalogue import BLOCKS, COLUMN_NOTES, NOTES, Entry
from phantomgrad_suite.report.experiments.lines import Line, lines_by_block, plain
from phantomgrad_suite.report.experiments.runs import Runs, Stat, group_runs
from phantomgrad_suite.report.experiments.step_speeds import StepSpeeds, step_speeds
from phantomgrad_suite.report.inputs import Curves, PaperNumber
from phantomgrad_suite.report.table import Block, Cell, Column, Row, Section, State, Status, Table
from phantomgrad_suite.runs.formats import duration
from phantomgrad_suite.runs.records import Record, StudyRecord

_MARKS = "‡§¶"

Blocks = Mapping[str, Sequence[Line]]
Contents = Sequence[tuple[Column, Callable[[Line], Cell | str]]]


def table_of_runs(
    entry: Entry,
    numbers: Sequence[PaperNumber],
    records: Sequence[Record],
    throughput: Sequence[StudyRecord] = (),
    published: Mapping[str, Curves] | None = None,
) -> Table:
    """Return the table with the paper's numbers next to those of our runs.

    Args:
        entry: of the table.
        numbers: of the paper, for this table.
        records: of this table.
        throughput: records of training steps, for this and other tables.
        published: curves that authors released, by row.
    """
    blocks = lines_by_block(numbers, group_runs(records))
    lines = [line for members in blocks.values() for line in members]
    sections = [_results(blocks, lines, step_speeds(throughput, lines))]
    measured = {key: mine for key, x in blocks.items() if (mine := [y for y in x if y.runs])}
    if measured:
        sections.append(_cost(measured))
    return Table(entry, _status(entry, lines), tuple(sections), published=published or {})


def _results(blocks: Blocks, lines: Sequence[Line], speeds: Sequence[StepSpeeds]) -> Section:
    marks = _marks(lines)
    contents: Contents = [
        (Column("Data set", numeric=False), lambda line: line.dataset),
        (Column("Metric", numeric=False), lambda line: line.metric.heading),
        (Column("Model", numeric=False), lambda line: line.model),
        (Column("Method", numeric=False), lambda line: line.name),
        (Column("Params", optional=True), lambda line: line.params),
        (Column("Paper", group="paper", optional=True), lambda line: _paper(line, marks)),
        (Column("Best"), lambda line: _stat(line, line.runs and line.runs.best)),
        (Column("Last"), lambda line: _stat(line, line.runs and line.runs.last)),
        (Column("Common (epoch)"), _common),
        (Column("Selected", optional=True), lambda x: _stat(x, x.runs and x.runs.selected)),
        (Column("Searched by", optional=True), _objective),
        (Column("Speed, paper", group="paper", optional=True), _paper_speed),
        (Column("Speed", optional=True), lambda line: _factor(line.speed, 1)),
        *(
            (Column(speed.heading, optional=True), lambda x, s=speed: _factor(s.of(x), 2))
            for speed in speeds
        ),
        (Column("n"), lambda line: str(line.runs.n) if line.runs else ""),
    ]
    section = _section("", contents, blocks)
    shown = [column.heading for column in section.columns]
    notes = [NOTES["statistics"], *_column_notes(shown)]
    notes += [speed.note for speed in speeds if speed.heading in shown]
    notes += [_paper_note(lines, note, mark) for note, mark in marks.items()]
    return replace(section, notes=(*notes, *_warnings(lines)))


def _cost(blocks: Blocks) -> Section:
    def mean(group: str, name: str) -> Callable[[Line], str]:
        return lambda line: _digits(line.runs.mean(group, name)) if line.runs else ""

    section = _section(
        "Cost",
        [
            (Column("Data set", numeric=False), lambda line: line.dataset),
            (Column("Method", numeric=False), lambda line: line.name),
            (Column("Parameters"), _parameters),
            (Column("s / epoch"), mean("seconds", "epoch")),
            (Column("CPU s / epoch", optional=True), mean("seconds", "epoch_cpu")),
            (Column("All runs"), _total),
            (Column("f / solve"), mean("solver", "evaluations")),
            (Column("Adjoint / solve", optional=True), mean("solver", "adjoint_evaluations")),
            (Column("Peak memory"), _peak),
        ],
        blocks,
    )
    runs = [line.runs for lines in blocks.values() for line in lines if line.runs]
    hardware = sorted(set[str]().union(*(each.hardware for each in runs)))
    notes = _column_notes([column.heading for column in section.columns])
    return replace(section, notes=(*notes, f"Run on: {'; '.join(hardware)}."))


def _section(title: str, contents: Contents, blocks: Blocks) -> Section:
    """Return a section with a row for each line, without optional columns that are empty."""

    def row(line: Line) -> Row:
        cells = {column.heading: contents_of(line) for column, contents_of in contents}
        return Row({h: c if isinstance(c, Cell) else Cell(c) for h, c in cells.items()}, line)

    made = tuple(
        Block(BLOCKS.get(key, key) if len(blocks) > 1 else "", tuple(map(row, lines)), key)
        for key, lines in blocks.items()
    )
    columns = tuple(
        column
        for column, _ in contents
        if not column.optional or any(r.cells[column.heading].text for b in made for r in b.rows)
    )
    return Section(title, "", columns, made)


def _stat(line: Line, stat: Stat | None) -> Cell:
    if stat is None or line.runs is None:
        return Cell()
    metric = line.metric
    spread = f" ± {metric.format(stat.std)}" if stat.n > 1 else ""
    gap = f" [{stat.n}/{line.runs.n}]" if stat.n < line.runs.n else ""
    text = metric.format(stat.mean) + spread + gap
    return Cell(text, stat.mean * metric.scale, stat.std * metric.scale, stat.n)


def _common(line: Line) -> Cell:
    if line.runs is None or line.runs.common is None:
        return Cell()
    stat, epoch = line.runs.common
    cell = _stat(line, stat)
    return replace(cell, text=f"{cell.text} ({epoch})")


def _paper(line: Line, marks: Mapping[str, str]) -> Cell:
    if line.paper is None:
        return Cell()
    value, spread = float(line.paper.value), float(line.paper.spread or 0)
    return Cell(line.paper.text, value, spread, mark=marks.get(line.paper.note, ""))


def _objective(line: Line) -> str:
    found = line.runs.objective if line.runs else None
    return f"{found[0].replace('/', ' ')} {found[1].mean:.4f}" if found else ""


def _paper_speed(line: Line) -> str:
    return f"{line.paper_speed.value}×" if line.paper_speed else ""  # noqa: RUF001


def _factor(value: float | None, decimals: int) -> str:
    return f"{value:.{decimals}f}×" if value else ""  # noqa: RUF001


def _parameters(line: Line) -> str:
    count = line.runs.mean("parameters", "total") if line.runs else None
    return "" if count is None else f"{count:,.0f}"


def _digits(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if value < 1 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def _total(line: Line) -> str:
    seconds = line.runs.total_seconds if line.runs else None
    return "" if seconds is None else duration(seconds)


def _peak(line: Line) -> str:
    memories = [record.memory for record in line.runs.records] if line.runs else []
    peaks = [memory["peak_bytes"] for memory in memories if memory.get("peak_bytes")]
    kinds = ", ".join(sorted({str(memory.get("kind", "")) for memory in memories}))
    return f"{max(peaks) / 2**20:,.0f} MiB ({kinds})" if peaks else ""


def _marks(lines: Sequence[Line]) -> dict[str, str]:
    """Return the mark of each remark of the paper: its own if it has one."""
    remarks = dict.fromkeys(line.paper.note for line in lines if line.paper and line.paper.note)
    marks = iter(_MARKS)
    return {remark: "†" if remark.startswith("†") else next(marks) for remark in remarks}


def _column_notes(headings: Sequence[str]) -> list[str]:
    return [f"{h}: {COLUMN_NOTES[h]}" for h in headings if h in COLUMN_NOTES]


def _paper_note(lines: Sequence[Line], remark: str, mark: str) -> str:
    text = f"{mark} Paper: {remark.removeprefix(mark).strip()}."
    ours = [
        f"{line.name} {line.metric.format(line.runs.top)}"
        for line in lines
        if line.paper and line.paper.note == remark and line.runs and line.runs.top is not None
    ]
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
    found += [
        NOTES["memory"].format(line=line, value=line.metric.format(value), length=length)
        for line, runs in measured
        for length, value in _at_other_memories(runs).items()
    ]
    return found + [
        NOTES["collapsed"].format(
            line=line, m=len(runs.collapses), n=runs.n, epochs=", ".join(map(str, runs.collapses))
        )
        for line, runs in measured
        if runs.collapses
    ]


def _at_other_memories(runs: Runs) -> dict[str, float]:
    """Return the mean over runs of the best evaluation, by the length of the memory."""
    found: dict[str, list[float]] = {}
    for record in runs.records:
        for name, curve in record.curves.items():
            known = [value for value in curve if value is not None]
            if name.startswith(f"{runs.metric.curve}_at_") and known:
                found.setdefault(name.rsplit("_", 1)[1], []).append(min(known))
    return {length: sum(best) / len(best) for length, best in found.items()}


def _status(entry: Entry, lines: Sequence[Line]) -> Status:
    """Return how many rows of the paper, or of all without any of the paper, have full runs."""
    if not any(line.runs for line in lines):
        return Status(State.MISSING, "the paper's numbers only" if lines else "")
    expected = [line for line in lines if line.paper] or lines
    full = [line for line in expected if line.is_full]
    if entry.data and full and plain(entry.data) not in {plain(line.dataset) for line in full}:
        return Status(State.PARTLY, f"not on {entry.data} yet")
    if len(full) == len(expected):
        return Status(State.MADE)
    detail = f"{len(full)} of {len(expected)} rows in full"
    return Status(State.PARTLY if full else State.REDUCED, detail)
