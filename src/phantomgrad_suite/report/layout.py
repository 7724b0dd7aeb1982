"""What a table is: blocks of lines, a line holding the paper's number and our runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from phantomgrad_suite.report.paper import PaperNumber
from phantomgrad_suite.report.published import Curves
from phantomgrad_suite.report.summary import Summary
from phantomgrad_suite.runs.metrics import Metric


@dataclass(frozen=True)
class Line:
    """One line of a table.

    Attributes:
        row: the experiment.
        dataset: what the line calls its data set.
        model: its model.
        method: its method.
        params: the number of parameters in print.
        metric: what is measured.
        variant: by what the runs differ from the full protocol or from other lines of the row.
        shared: a long variant that all runs on the data set share, said once below the table.
        paper: the paper's number, where the runs may be set beside it.
        paper_speed: the paper's speed, likewise.
        summary: our runs; ``None`` where they are missing.
    """

    row: str
    dataset: str
    model: str
    method: str
    params: str
    metric: Metric
    variant: str = ""
    shared: str = ""
    paper: PaperNumber | None = None
    paper_speed: PaperNumber | None = None
    summary: Summary | None = None

    @property
    def name(self) -> str:
        """The method, and by what the runs differ."""
        return f"{self.method} [{self.variant}]" if self.variant else self.method

    @property
    def reduced(self) -> bool:
        """Whether our runs are not of the full protocol."""
        return self.summary is not None and self.summary.records[0].protocol != "full"


@dataclass(frozen=True)
class Block:
    """Lines under one protocol; ``key`` is the folder between table and row, often none."""

    key: str
    title: str
    lines: tuple[Line, ...]

    @property
    def datasets(self) -> list[str]:
        """The data sets, in the order of the lines."""
        return list(dict.fromkeys(line.dataset for line in self.lines))

    def speed(self, line: Line) -> float | None:
        """Return how many times faster an epoch of ``line`` is than the paper's reference row.

        The reference is the row of the same data set whose printed speed is 1.0; ``None`` unless
        both were run, on the same hardware by as many processes.
        """
        ours = line.summary if line.paper_speed else None
        for other in self.lines:
            if other.dataset != line.dataset or other.paper_speed is None or other.summary is None:
                continue
            if float(other.paper_speed.value) == 1 and ours is not None:
                return _ratio(other.summary, ours)
        return None


@dataclass(frozen=True)
class StepSpeeds:
    """How rows compare in the time of a training step, on one hardware.

    Attributes:
        place: the hardware, and whether the measurement is reduced.
        changes: what it reduces, in words.
        faster: by row, how many times less time a sample takes than in the row's baseline; 1 for
            a baseline itself.
    """

    place: str
    changes: str
    faster: dict[str, float]

    @property
    def heading(self) -> str:
        """The heading of its column."""
        return f"Speed, step on {self.place}"


@dataclass(frozen=True)
class Table:
    """A table: its name (the first part of its rows), its title and its blocks.

    ``speeds`` holds what steps on synthetic batches say of its rows, by hardware; ``published``
    the curves of its rows that authors released, by row.
    """

    name: str
    title: str
    blocks: tuple[Block, ...]
    speeds: tuple[StepSpeeds, ...] = ()
    published: Mapping[str, Curves] = field(default_factory=dict)

    @property
    def lines(self) -> list[Line]:
        """The lines of all blocks."""
        return [line for block in self.blocks for line in block.lines]


def _ratio(reference: Summary, summary: Summary) -> float | None:
    seconds = [each.mean("seconds", "epoch") for each in (reference, summary)]
    if reference.hardware != summary.hardware or not seconds[0] or not seconds[1]:
        return None
    return seconds[0] / seconds[1]
