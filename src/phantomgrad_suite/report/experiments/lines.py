"""The lines of a table of runs: the paper's rows in its order, and the runs that belong there."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from phantomgrad_suite.report.baselines import Baseline, Baselines, baseline_of
from phantomgrad_suite.report.experiments.runs import (
    Gradient,
    Runs,
    describe,
    family_of,
    gradient_of,
)
from phantomgrad_suite.report.inputs import SPEED, PaperNumber
from phantomgrad_suite.runs.identity import split_row
from phantomgrad_suite.runs.metrics import Metric, metric_of
from phantomgrad_suite.runs.records import Record


@dataclass(frozen=True)
class Line:
    """An experiment, by its printed names: its runs, the paper's number, or both."""

    row: str  # for example table4/cox2_implicit
    dataset: str
    model: str
    method: str
    params: str
    metric: Metric
    variant: str = ""  # how the runs differ from the full protocol or from other lines of the row
    paper: PaperNumber | None = None  # if the runs may be compared with it or are missing
    runs: Runs | None = None
    baseline: Baseline | None = None  # what its runs must beat, if that is known

    @property
    def name(self) -> str:
        """The method, and in brackets how its runs differ from others, and what became of them."""
        notes = filter(None, (self.variant, self.fate, "" if self.trained else "did not train"))
        return " ".join([self.method, *(f"[{note}]" for note in notes)])

    @property
    def fate(self) -> str:
        return self.runs.fate if self.runs else ""

    @property
    def trained(self) -> bool:
        """Whether the runs, at their best epochs, beat the baseline; true where none is known."""
        best = self.runs.best if self.runs else None
        return not self.baseline or not best or self.baseline.is_beaten_by(best.mean)

    @property
    def block(self) -> str:
        return block_of(self.row)

    @property
    def name_in_table(self) -> str:
        """The row without its scale and table, for example cox2_implicit."""
        return split_row(self.row)[1].partition("/")[2]

    @property
    def key(self) -> str:
        """The name of the data set in records, for names of files."""
        return (self.runs.key if self.runs else self.dataset).lower()

    @property
    def gradient(self) -> Gradient | None:
        """The phantom gradient of its runs, if they have one with a fixed λ."""
        return gradient_of(self.runs.first.config) if self.runs else None

    @property
    def family(self) -> str:
        """The family of the gradient of its runs, which has a colour; empty if it is another."""
        return family_of(self.runs.first.config) if self.runs else ""

    @property
    def records(self) -> tuple[Record, ...]:
        return self.runs.records if self.runs else ()

    @property
    def scale(self) -> str:
        return split_row(self.row)[0]

    @property
    def is_full(self) -> bool:
        return self.runs is not None and self.runs.first.protocol == "full"

    def curves(self, name: str) -> list[list[float]]:
        return [curve for record in self.records if (curve := record.curves.get(name))]


def lines_of(
    numbers: Sequence[PaperNumber], groups: Sequence[Runs], baselines: Baselines
) -> list[Line]:
    """Return the lines of a table, those of a block together."""
    papers = {number.row: number for number in numbers if number.metric != SPEED}
    lines = [
        replace(
            _measured(runs, papers.get(runs.unscaled_row), groups),
            baseline=baseline_of(runs.first, baselines),
        )
        for runs in groups
    ]
    compared = {line.row for line in lines if line.paper}
    lines += [
        Line(row, n.dataset, n.model, _method(n), n.params, metric_of(n.metric), paper=n)
        for row, n in papers.items()
        if row not in compared
    ]
    spelling = {plain(number.dataset): number.dataset for number in numbers}
    lines = [replace(x, dataset=spelling.get(plain(x.dataset), x.dataset)) for x in lines]
    return sorted(lines, key=lambda line: _order(line, numbers))


def plain(name: str) -> str:
    """Return the letters and digits of a name in lower case, to compare spellings."""
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def block_of(row: str) -> str:
    """Return the folder between the table and the row, in that of its scale (``cpu/honest``)."""
    scale, name = split_row(row)
    return "/".join([*([scale] if scale else []), *name.split("/")[1:-1]])


def _measured(runs: Runs, number: PaperNumber | None, groups: Sequence[Runs]) -> Line:
    """Return the line of some runs, with the paper's number if they may be compared."""
    label, row = runs.first.label, runs.first.row
    may_compare = (
        number is not None
        and plain(number.dataset) == plain(runs.dataset)
        and number.metric == runs.metric.key
        and not runs.reduction
        and not runs.scale
    )
    others = [
        other
        for other in groups
        if block_of(other.first.row) == block_of(row) and other.dataset == runs.dataset
    ]
    return Line(
        row=row,
        dataset=runs.dataset,
        model=number.model if number else label.get("model", ""),
        method=_method(number) if number else label.get("method", row),
        params=number.params
        if number and may_compare
        else _abbreviate(runs.mean("parameters", "total")),
        metric=runs.metric,
        variant=describe(runs, others),
        paper=number if may_compare else None,
        runs=runs,
    )


def _method(number: PaperNumber) -> str:
    """Return the printed method, with the paper's mark where only that distinguishes two rows."""
    return f"{number.method} †" if number.note.startswith("†") else number.method


def _order(line: Line, numbers: Sequence[PaperNumber]) -> tuple[object, ...]:
    """Return a key that sorts lines as in the paper, then others; reduced ones come last."""

    def place(value: str, values: Sequence[str]) -> tuple[int, str]:
        return (values.index(value), "") if value in values else (len(values), value)

    leaves = [number.row.split("/")[-1] for number in numbers]
    leaf = line.row.split("/")[-1]
    return (
        place(line.block, [block_of(number.row) for number in numbers]),
        place(plain(line.dataset), [plain(number.dataset) for number in numbers]),
        leaves.index(leaf) if leaf in leaves else len(leaves),
        *(line.model, not leaf.endswith("implicit")),
        [float(p) if p[:1].isdigit() else p for p in re.split(r"(\d+\.?\d*)", leaf)],
        *(line.paper is None, line.variant),
    )


def _abbreviate(count: float | None) -> str:
    if count is None:
        return ""
    scaled, unit = (count / 1e3, "K") if count < 1e6 else (count / 1e6, "M")
    return f"{scaled:.0f}{unit}" if scaled >= 10 else f"{scaled:.1f}{unit}"
