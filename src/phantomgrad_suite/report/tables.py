"""The cells of a table: results and cost, as text; how they are set is the renderers' business."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from phantomgrad_suite.report.layout import Block, Line, StepSpeeds, Table
from phantomgrad_suite.report.summary import Stat
from phantomgrad_suite.runs.metrics import Metric

DASH = "—"
_MARKS = "‡§¶"


@dataclass(frozen=True)
class Column:
    """A heading, whether its cells are numbers, and whether it stays when all are empty."""

    heading: str
    cell: Callable[[Block, Line], str]
    numeric: bool = True
    optional: bool = False


@dataclass(frozen=True)
class Section:
    """The rows of one block; ``breaks`` are the positions at which a new data set begins."""

    title: str
    rows: tuple[tuple[str, ...], ...]
    breaks: tuple[int, ...]


@dataclass(frozen=True)
class Grid:
    """Headings, their alignment, and the sections of rows below."""

    headings: tuple[str, ...]
    numeric: tuple[bool, ...]
    sections: tuple[Section, ...]


def result_grid(table: Table) -> Grid:
    """Return what was measured, the paper's number beside ours."""
    marks = note_marks(table)
    columns = [
        Column("Data set", lambda _, line: line.dataset, numeric=False),
        Column("Metric", lambda _, line: line.metric.heading, numeric=False),
        Column("Model", lambda _, line: line.model, numeric=False),
        Column("Method", lambda _, line: line.name, numeric=False),
        Column("Params", lambda _, line: line.params, optional=True),
        Column("Paper", lambda _, line: _paper(line, marks), optional=True),
        Column("Best", lambda _, line: _ours(line, "best")),
        Column("Last", lambda _, line: _ours(line, "last")),
        Column("Common (epoch)", lambda _, line: _common(line)),
        Column("Selected", lambda _, line: _ours(line, "selected"), optional=True),
        Column("Searched by", lambda _, line: _objective(line), optional=True),
        Column("Speed, paper", lambda _, line: _paper_speed(line), optional=True),
        Column("Speed", _speed, optional=True),
        *(Column(speeds.heading, _step_speed(speeds), optional=True) for speeds in table.speeds),
        Column("n", lambda _, line: str(line.summary.n) if line.summary else ""),
    ]
    return _fill(columns, table)


def cost_grid(table: Table) -> Grid | None:
    """Return what our runs cost; ``None`` without runs."""
    columns = [
        Column("Data set", lambda _, line: line.dataset, numeric=False),
        Column("Method", lambda _, line: line.name, numeric=False),
        Column("Parameters", lambda _, line: _count(_mean(line, "parameters", "total"))),
        Column("s / epoch", lambda _, line: _digits(_mean(line, "seconds", "epoch"))),
        Column(
            "CPU s / epoch",
            lambda _, line: _digits(_mean(line, "seconds", "epoch_cpu")),
            optional=True,
        ),
        Column("All runs", lambda _, line: _total(line)),
        Column("f / solve", lambda _, line: _digits(_mean(line, "solver", "evaluations"))),
        Column(
            "Adjoint / solve",
            lambda _, line: _digits(_mean(line, "solver", "adjoint_evaluations")),
            optional=True,
        ),
        Column("Peak memory", lambda _, line: _peak(line)),
    ]
    blocks = tuple(
        Block(block.key, block.title, lines)
        for block in table.blocks
        if (lines := tuple(line for line in block.lines if line.summary))
    )
    return _fill(columns, Table(table.name, table.title, blocks)) if blocks else None


def note_marks(table: Table) -> dict[str, str]:
    """Return the mark of each note on the paper's numbers: its own if it brings one."""
    notes = dict.fromkeys(line.paper.note for line in table.lines if line.paper and line.paper.note)
    marks = iter(_MARKS)
    return {note: "†" if note.startswith("†") else next(marks) for note in notes}


def number(value: float, metric: Metric) -> str:
    """Print a value of a record in the unit of the metric."""
    return f"{value * metric.scale:.{metric.decimals}f}"


def duration(seconds: float) -> str:
    """Print seconds in the unit that suits them."""
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s"


def _fill(columns: list[Column], table: Table) -> Grid:
    kept = [
        column
        for column in columns
        if not column.optional
        or any(column.cell(b, line) for b in table.blocks for line in b.lines)
    ]
    sections = []
    for block in table.blocks:
        rows = tuple(tuple(c.cell(block, line) or DASH for c in kept) for line in block.lines)
        datasets = [line.dataset for line in block.lines]
        breaks = tuple(i for i in range(1, len(rows)) if datasets[i] != datasets[i - 1])
        sections.append(Section(block.title if len(table.blocks) > 1 else "", rows, breaks))
    headings = tuple(column.heading for column in kept)
    return Grid(headings, tuple(column.numeric for column in kept), tuple(sections))


def _paper(line: Line, marks: dict[str, str]) -> str:
    if line.paper is None:
        return ""
    mark = marks.get(line.paper.note)
    return f"{line.paper.text} {mark}" if mark else line.paper.text


def _ours(line: Line, which: str) -> str:
    if line.summary is None:
        return ""
    return _stat(getattr(line.summary, which), line.metric, line.summary.n)


def _common(line: Line) -> str:
    cell = _ours(line, "common")
    return f"{cell} ({line.summary.common_epoch})" if cell and line.summary else ""


def _stat(stat: Stat | None, metric: Metric, n: int) -> str:
    if stat is None:
        return ""
    spread = f" ± {number(stat.std, metric)}" if stat.n > 1 else ""
    gap = f" [{stat.n}/{n}]" if stat.n < n else ""
    return number(stat.mean, metric) + spread + gap


def _objective(line: Line) -> str:
    found = line.summary.objective if line.summary else None
    return f"{found[0].replace('/', ' ')} {found[1].mean:.4f}" if found else ""


def _paper_speed(line: Line) -> str:
    return f"{line.paper_speed.value}×" if line.paper_speed else ""  # noqa: RUF001


def _speed(block: Block, line: Line) -> str:
    speed = block.speed(line)
    return f"{speed:.1f}×" if speed else ""  # noqa: RUF001


def _step_speed(speeds: StepSpeeds) -> Callable[[Block, Line], str]:
    def cell(_: Block, line: Line) -> str:
        speed = speeds.faster.get(line.row) if line.paper_speed else None
        return f"{speed:.2f}×" if speed else ""  # noqa: RUF001

    return cell


def _mean(line: Line, group: str, name: str) -> float | None:
    return line.summary.mean(group, name) if line.summary else None


def _count(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _digits(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if value < 1 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def _total(line: Line) -> str:
    seconds = line.summary.total_seconds() if line.summary else None
    return "" if seconds is None else duration(seconds)


def _peak(line: Line) -> str:
    memories = [r.memory for r in line.summary.records] if line.summary else []
    peaks = [m["peak_bytes"] for m in memories if m.get("peak_bytes")]
    if not peaks:
        return ""
    kinds = sorted({str(m.get("kind", "")) for m in memories})
    return f"{max(peaks) / 2**20:,.0f} MiB ({', '.join(kinds)})"
