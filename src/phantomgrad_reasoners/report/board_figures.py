"""A puzzle that is filled in by a reasoner, segment by segment."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from phantomgrad_reasoners.boards import BOXES
from phantomgrad_suite.report.catalogue import FIGURES
from phantomgrad_suite.report.document import Table
from phantomgrad_suite.report.experiments import leaf_of
from phantomgrad_suite.report.figures.style import Plot, file_name
from phantomgrad_suite.report.results import records_of

_ACROSS = 6  # panels in a row
_BLANK = 1  # the token of a blank cell
_DARK, _WRONG, _TINT = "#222222", "#B33C00", "#FBDDCD"


@dataclass(frozen=True)
class Strip(Plot):
    """The board of a puzzle, then the answers; tokens by cell.

    Clues are bold, wrong cells red on a tinted ground.
    """

    inputs: Sequence[int] = ()
    targets: Sequence[int] = ()
    answers: Sequence[Sequence[int]] = ()  # of each segment

    def draw(self) -> Figure:
        boards = [self.inputs, *self.answers]
        across, down = min(_ACROSS, len(boards)), math.ceil(len(boards) / _ACROSS)
        figure = Figure(figsize=(1.7 * across, 0.5 + 1.9 * down), layout="constrained")
        figure.suptitle(self.title, x=0.012, ha="left")
        panels = figure.subplots(down, across, squeeze=False).flat
        for number, (board, axes) in enumerate(zip(boards, panels, strict=False)):
            self._board(axes, board, is_answer=number > 0)
            wrong = sum(a != b for a, b in zip(board, self.targets, strict=True))
            about = f"segment {number}: {wrong} wrong" if wrong else f"segment {number}: solved"
            axes.set_title(about if number else "puzzle", fontweight="normal", fontsize=8.5)
        for axes in panels:  # what the boards left
            axes.set_visible(False)
        return figure

    def _board(self, axes: Axes, board: Sequence[int], *, is_answer: bool) -> None:
        side = math.isqrt(len(board))
        for cell, (token, clue, target) in enumerate(
            zip(board, self.inputs, self.targets, strict=True)
        ):
            (y, x), wrong = divmod(cell, side), is_answer and token != target
            if wrong:
                axes.add_patch(Rectangle((x, y), 1, 1, color=_TINT, linewidth=0))
            axes.text(
                *(x + 0.5, y + 0.54, str(token - 1) if token > _BLANK else ""),
                ha="center",
                va="center",
                fontsize=66 / side,
                color=_WRONG if wrong else _DARK,
                fontweight="normal" if clue == _BLANK else "bold",
            )
        rows, columns = BOXES[side]
        for i in range(side + 1):
            for line, step in ((axes.axhline, rows), (axes.axvline, columns)):
                line(i, color=_DARK, linewidth=1.3 if i % step == 0 else 0.2)
        axes.set(xlim=(-0.05, side + 0.05), ylim=(side + 0.05, -0.05), aspect="equal")
        axes.axis("off")


def examples(table: Table) -> Iterator[Plot]:
    """Yield the example of each row, from the first run that has one."""
    for line in table.experiments.itertuples():
        for record in records_of(line, table.runs)[:1]:
            kept = {n: c for n, c in record.curves.items() if n.startswith("example/")}
            curves = {n.removeprefix("example/"): [*map(int, c)] for n, c in kept.items()}
            answers = [c for n, c in curves.items() if n.startswith("segment")]
            if answers:
                yield Strip(
                    file_name(table.key, leaf_of(line.row), "example"),
                    FIGURES["example"],
                    f"{line.dataset}: {line.model}, {line.method}",
                    inputs=curves["inputs"],
                    targets=curves["targets"],
                    answers=answers,
                )
