"""A figure as data: curves in a grid of panels; and the function that draws it.

The colours are those of Okabe and Ito, which colour-blind readers can distinguish; each comes with
a line style and a marker, so that a figure can be read in grey too.
"""

import io
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

FAMILIES = {
    "implicit": "#222222",
    "UPG": "#0072B2",
    "NPG": "#D55E00",
    "one step": "#009E73",
    "BPTT": "#9467A8",
}
"""The colours of gradients, in all figures; dash and marker tell members of a family apart."""

# Lists of different lengths: a ninth curve has the first colour, but another line style.
_COLORS = ("#222222", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#6b6b6b")
_DASHES = ("-", (0, (6, 1.5)), (0, (4, 1.2, 1, 1.2)), (0, (1.2, 1.1)), (0, (8, 2, 1.2, 2, 1.2, 2)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_TAKEN = {*FAMILIES.values()}
_MUTED = "#6b6b6b"
_FEW = 12  # points of a curve that get markers
_WIDE = 5000  # the span of a logarithmic axis from which only powers of ten are named
_WRAP = 36  # characters of a label
# The formats of a figure, without the metadata that would make equal figures differ.
_FORMATS: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
_STYLE = Path(__file__).parents[1] / "templates" / "figures.mplstyle"

Look = dict[str, Any]


@dataclass(frozen=True)
class Curve:
    """Points of one label, in the panel of a row and a column."""

    label: str
    x: Any
    y: Any
    row: str = ""
    column: str = ""
    band: tuple[Any, Any] | None = None  # the lower and upper ends of an interval around each point
    family: str = ""  # of FAMILIES, which gives the colour


@dataclass(frozen=True)
class Plot:
    """A figure, named as its files are; ``caption`` is for the page.

    The rows of its curves are the labels of the y axes, their columns the titles. A plot with
    ``places``, the names of 0, 1, ... on the y axes, shows dots with horizontal whiskers, and its
    rows are the labels of the x axes.
    """

    name: str
    caption: str
    title: str
    curves: Sequence[Curve]
    x: str = ""  # the label of the x axes; empty if the names of the columns are
    note: str = ""  # above the legend, for example what the bands are
    log: str = ""  # the logarithmic axes, for example xy
    share: Literal["none", "row", "all"] = "none"  # which panels share their y axis
    ticks: Sequence[float] = ()  # of the x axis, by default those of matplotlib
    whiskers: bool = False  # in place of bands
    places: Mapping[tuple[str, str], Sequence[str]] = field(default_factory=dict)

    def draw(self) -> Figure:
        rows = list(dict.fromkeys(curve.row for curve in self.curves))
        columns = list(dict.fromkeys(curve.column for curve in self.curves))
        looks = self._looks()
        labels = [_wrap(label) for label in looks]
        width = max(6.4, (5.2 if self.places else min(2.9, 12 / len(columns))) * len(columns) + 0.8)
        longest = max(len(line) for label in looks for line in textwrap.wrap(label, _WRAP))
        across = max(1, min(len(labels), int(width / (0.7 + 0.066 * longest))))
        down = sum(label.count("\n") + 1 for label in labels) / across
        heights = [self._height(row, rows) for row in rows]
        size = (width, sum(heights) + 1 + 0.18 * down)
        figure = Figure(figsize=size, layout="constrained")
        figure.suptitle(pretty(textwrap.fill(self.title, int(11 * width))), x=0.012, ha="left")
        grid = figure.subplots(
            *(len(rows), len(columns)),
            squeeze=False,
            sharex="row" if self.places else "col",
            sharey=self.share,
            height_ratios=heights,
        )
        for j, column in enumerate(columns):
            panels = [[c for c in self.curves if (c.row, c.column) == (r, column)] for r in rows]
            for axes, curves in zip(grid[:, j], panels, strict=True):
                axes.set_visible(bool(curves))
                if curves:
                    self._panel(axes, curves, looks)
            drawn = [i for i, curves in enumerate(panels) if curves]
            if self.x or self.places:
                grid[drawn[0], j].set_title(_wrap(column, 50 if self.places else _WRAP))
            if not self.places:
                grid[drawn[-1], j].set_xlabel(self.x or _wrap(column))
        if not self.places:
            for axes, row in zip(grid[:, 0], rows, strict=True):
                axes.set_ylabel("\n".join(_wrap(line, 30) for line in row.split("\n")))
        legend = figure.legend(
            handles=[Line2D([], [], label=_wrap(label), **look) for label, look in looks.items()],
            loc="outside lower center",
            ncols=across,
            title=self.note,
        )
        legend.get_title().set_color(_MUTED)
        return figure

    def _height(self, row: str, rows: Sequence[str]) -> float:
        if self.places:
            return 0.75 + 0.46 * max(len(n) for (r, _), n in self.places.items() if r == row)
        return 2.1 if len(rows) > 1 else 2.8

    def _looks(self) -> dict[str, Look]:
        families = {curve.label: curve.family for curve in self.curves}
        dashes = ["none"] if self.places else _DASHES
        others = cycle([c for c in _COLORS if not any(families.values()) or c not in _TAKEN])
        numbers: dict[str, int] = {}  # of the labels of a family, or of none
        looks = {}
        for (name, family), marker in zip(families.items(), cycle(_MARKERS), strict=False):
            i = numbers[family] = numbers.get(family, -1) + 1
            looks[name] = {
                "color": FAMILIES[family] if family else next(others),
                "linestyle": dashes[i % len(dashes)],
                "marker": marker,
                "markersize": 4.5,
            }
        return looks

    def _panel(self, axes: Axes, curves: Sequence[Curve], looks: Mapping[str, Look]) -> None:
        for curve in curves:
            self._curve(axes, curve, looks[curve.label])
        for name in self.log:
            axes.set(**{f"{name}scale": "log"})
        if self.ticks:
            axes.set_xticks(self.ticks, [f"{tick:g}" for tick in self.ticks])
            axes.minorticks_off()
        elif "x" in self.log:
            low, high = axes.get_xlim()
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < _WIDE * low else (1,)))
            axes.xaxis.set_major_formatter("{x:,g}")
            axes.xaxis.set_minor_locator(NullLocator())
        else:
            whole = all(float(x).is_integer() for curve in curves for x in curve.x)
            axes.xaxis.set_major_locator(MaxNLocator(7, integer=whole, steps=[1, 2, 5, 10]))
            if whole:
                axes.xaxis.set_major_formatter("{x:,g}")
        if self.places:
            names = self.places[curves[0].row, curves[0].column]
            axes.set_yticks(range(len(names)), [_wrap(name) for name in names])
            axes.set(ylim=(len(names) - 0.5, -0.5), xlabel=curves[0].row)
            axes.spines["left"].set_visible(False)
        axes.grid(visible=True, axis="x" if self.places else "y")
        axes.tick_params(length=0, which="both")

    def _curve(self, axes: Axes, curve: Curve, look: Look) -> None:
        if self.places or self.whiskers:
            middle = np.asarray(curve.x if self.places else curve.y)
            spread = None
            if curve.band is not None:
                spread = (middle - curve.band[0], np.asarray(curve.band[1]) - middle)
            bars: Look = {"xerr" if self.places else "yerr": spread}
            axes.errorbar(curve.x, curve.y, **bars, **look)
            return
        if curve.band is not None:
            axes.fill_between(curve.x, *curve.band, color=look["color"], alpha=0.12, linewidth=0)
        axes.plot(curve.x, curve.y, **look | ({"marker": None} if len(curve.x) > _FEW else {}))


def pretty(text: str) -> str:
    """Return text with ``A(5, 0.5)``, which a line break may divide, as the paper's symbol."""
    return re.sub(r"A\((\d+),\s([\d.]+)\)", r"$A_{\1,\\,\2}$", text)


def _wrap(label: str, width: int = _WRAP) -> str:
    return label if "$" in label else pretty(textwrap.fill(label, width))


def file_name(*parts: str) -> str:
    """Return a name of the ``parts`` that are not empty, without dots, commas, slashes, spaces."""
    return "_".join(filter(None, parts)).translate(str.maketrans("/ ", "__", ".,"))


@contextmanager
def styled() -> Iterator[None]:
    """Draw and save figures in this look, whatever the settings of the user."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(mpl.rc_params_from_file(_STYLE, use_default_template=False))
        yield


def _fix_layout(figure: Figure) -> None:
    """Lay out a figure once, in round numbers: the last bits of the solver's result may differ."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for axes in figure.axes:
        axes.set_position(np.round(axes.get_position().bounds, 6).tolist())


def render(plot: Plot) -> dict[str, bytes]:
    """Return a figure in every format; the same figure gives the same bytes."""
    return rendered(plot.draw)


def rendered(draw: Callable[[], Figure]) -> dict[str, bytes]:
    """Return what ``draw`` returns, in every format."""
    files = {}
    with styled():
        figure = draw()
        _fix_layout(figure)
        for kind, metadata in _FORMATS.items():
            buffer = io.BytesIO()
            figure.savefig(buffer, format=kind, metadata=metadata)
            files[kind] = buffer.getvalue()
    return files
