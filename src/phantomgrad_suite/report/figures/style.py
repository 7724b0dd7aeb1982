"""The look of all figures: colours by family of gradients, names at the ends of lines, one font.

The colours are those of Okabe and Ito, which colour-blind readers can distinguish; each comes with
a dash and a marker, so that a figure can be read in grey too.
"""

import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from textwrap import fill, wrap
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

FAMILIES = {
    "implicit": "#222222",
    "UPG": "#0072B2",
    "NPG": "#D55E00",
    "one step": "#009E73",
    "BPTT": "#9467A8",
}
"""The colours of gradients, in all figures; dash and marker tell members of a family apart."""
MUTED = "#6b6b6b"

_OTHERS = ("#CC79A7", "#E69F00", "#56B4E9", MUTED)
_DASHES = ("-", (0, (6, 1.5)), (0, (4, 1.2, 1, 1.2)), (0, (1.2, 1.1)), (0, (8, 2, 1.2, 2, 1.2, 2)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_SAME = 1e-3  # relative difference of curves, below what a figure shows
_FEW = 12  # points of a curve that get markers
_PANEL = 2.6, 2.1  # inches
_WRAP = 40  # letters of a name
_LINE = 0.15  # inches between names at the ends of curves
# The formats of a figure, without the metadata that would make equal figures differ.
_FORMATS: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
_STYLE = Path(__file__).parents[1] / "templates" / "figures.mplstyle"

Look = dict[str, Any]
Looks = dict[tuple[str, str], Look]
"""By label and family."""


def curve(
    label: str,
    x: Any,
    y: Any,
    row: str = "",
    column: str = "",
    *,
    low: Any = np.nan,
    high: Any = np.nan,
    family: str = "",
) -> pd.DataFrame:
    """Return the points of a curve, with the ends of a band around it.

    It is in the panel of this row, the label of the y axis, and column, the title.
    """
    points = pd.DataFrame({"x": np.asarray(x, dtype=float), "y": np.asarray(y, dtype=float)})
    about = {"label": label, "row": row, "column": column, "family": family}
    return points.assign(low=np.asarray(low), high=np.asarray(high), **about)


@dataclass(frozen=True)
class Plot:
    """A figure, named as its files are; ``caption`` is for the page, ``title`` the finding."""

    name: str
    caption: str
    title: str

    def draw(self) -> Figure:
        raise NotImplementedError


@dataclass(frozen=True)
class Lines(Plot):
    """Curves in a grid of panels, named at their ends: ``points`` are those of :func:`curve`."""

    points: pd.DataFrame
    x: str = ""  # the label of the x axes; empty if the names of the columns are
    note: str = ""  # below, for example what the bands are
    log: str = ""  # the logarithmic axes, for example xy
    share: Literal["none", "row", "all"] = "none"  # which panels share their y axis
    ticks: Sequence[float] = ()  # of the x axis, by default those of matplotlib
    whiskers: bool = False  # in place of bands

    def draw(self) -> Figure:
        rows, columns = self.points["row"].unique(), self.points["column"].unique()
        looks = looks_of(self.points)
        named = sum(self._is_named(r, c) for r in rows[:1] for c in columns)
        longest = self.points["label"].str.len().max()
        size = (
            max(6.4, 0.7 + _PANEL[0] * len(columns) + named * (0.7 + 0.066 * longest)),
            0.75 + _PANEL[1] * len(rows) + 0.35 * (len(rows) == 1),
        )
        figure, grid = _subplots(self.title, size, len(rows), len(columns), sharey=self.share)
        places = {(r, c): grid[i, j] for i, r in enumerate(rows) for j, c in enumerate(columns)}
        panels = dict(iter(self.points.groupby(["row", "column"])))
        for place, axes in places.items():
            axes.set_visible(place in panels)
            if place in panels:
                self._panel(axes, panels[place], looks)
        for row in rows:
            text = "\n".join(pretty(fill(line, 32)) for line in row.split("\n"))
            places[row, columns[0]].set_ylabel(text)
        for column in columns:
            drawn = [places[row, column] for row in rows if (row, column) in panels]
            drawn[-1].set_xlabel(self.x or pretty(column))
            drawn[0].set_title(pretty(fill(column, _WRAP)) if self.x else "")
        for (row, column), points in panels.items():
            if self._is_named(row, column):
                self._name(places[row, column], points.dropna(subset="y"), looks)
        if self.note:
            figure.supxlabel(self.note, fontsize=7.5, color=MUTED, x=0.012, ha="left")
        return figure

    def _panel(self, axes: Axes, points: pd.DataFrame, looks: Looks) -> None:
        for key, found in points.groupby(["label", "family"], sort=False):
            look = dict(looks[key])
            if self.whiskers:
                spread = [found["y"] - found["low"], found["high"] - found["y"]]
                has = found["low"].notna().any()
                axes.errorbar(found["x"], found["y"], yerr=spread if has else None, **look)
                continue
            if found["low"].notna().any():
                band = (found["x"], found["low"], found["high"])
                axes.fill_between(*band, color=look["color"], alpha=0.12, linewidth=0)
            look |= {"marker": None} if len(found) > _FEW else {}
            axes.plot(found["x"], found["y"], **look)
        for name in self.log:
            axes.set(**{f"{name}scale": "log"})
        self._ticks(axes, points["x"])
        axes.grid(visible=True, axis="y")
        axes.tick_params(length=0, which="both")

    def _ticks(self, axes: Axes, x: pd.Series) -> None:
        if self.ticks:
            axes.set_xticks(self.ticks, [f"{tick:g}" for tick in self.ticks])
            axes.minorticks_off()
        elif "x" in self.log:
            low, high = axes.get_xlim()
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 3) if high < 300 * low else (1,)))
            axes.xaxis.set_major_formatter("{x:,g}")
            axes.xaxis.set_minor_formatter(NullFormatter())
        else:
            whole = bool((x % 1 == 0).all())
            axes.xaxis.set_major_locator(MaxNLocator(5, integer=whole, steps=[1, 2, 5, 10]))
            axes.xaxis.set_major_formatter("{x:,g}")

    def _labels(self, row: str, column: str) -> set[str]:
        panel = (self.points["row"] == row) & (self.points["column"] == column)
        return {*self.points.loc[panel, "label"]}

    def _is_named(self, row: str, column: str) -> bool:
        """Return whether a panel names its curves: not where its right neighbour has the same."""
        columns = [*self.points["column"].unique()]
        after = columns[columns.index(column) + 1 :][:1]
        return not after or not self._labels(row, column) <= self._labels(row, after[0])

    def _name(self, axes: Axes, points: pd.DataFrame, looks: Looks) -> None:
        """Write the names of curves at their ends, each with a piece of its line."""
        ends = points.drop_duplicates("label", keep="last")
        axes.get_xlim(), axes.get_ylim()  # settles the limits, which the transformation needs
        to_axes = axes.transData + axes.transAxes.inverted()
        heights = [to_axes.transform((x, y))[1] for x, y in zip(ends["x"], ends["y"], strict=True)]
        size = axes.get_window_extent()
        width, height = size.width / axes.figure.dpi, size.height / axes.figure.dpi
        names = zip(ends["label"], ends["family"], spread(heights, _LINE / height), strict=True)
        for label, family, at in names:
            look = looks[label, family]
            sample = [1 + 0.06 / width, 1 + 0.34 / width]
            axes.add_line(Line2D(sample, [at, at], transform=axes.transAxes, clip_on=False, **look))
            axes.text(
                *(sample[1] + 0.08 / width, at, pretty(label)),
                transform=axes.transAxes,
                va="center",
                fontsize=7.5,
            )


@dataclass(frozen=True)
class Dots(Plot):
    """Values in a line for each name, in a grid of panels: a marker a series, colours by family.

    ``points`` have x with ``low`` and ``high``, ``label``, ``name``, ``family``, and ``row`` and
    ``column`` of the panel: the label of its x axis and its title.
    """

    points: pd.DataFrame
    note: str = ""
    log: bool = False

    def draw(self) -> Figure:
        rows, columns = self.points["row"].unique(), self.points["column"].unique()
        series = [*self.points["label"].unique()]
        names = self.points.drop_duplicates(["row", "column", "name"])
        lines = names["name"].map(lambda name: len(wrap(name, _WRAP)))
        tallest = lines.groupby([names["row"], names["column"]], sort=False).sum()
        heights = [0.9 + 0.3 * tallest[row].max() for row in rows]
        longest = min(_WRAP, names["name"].str.len().max())
        size = max(6.8, (3.1 + 0.062 * longest) * len(columns)), sum(heights) + 0.85
        figure, grid = _subplots(self.title, size, len(rows), len(columns), height_ratios=heights)
        for i, row in enumerate(rows):
            for j, column in enumerate(columns):
                points = self.points[
                    (self.points["row"] == row) & (self.points["column"] == column)
                ]
                grid[i, j].set_visible(len(points) > 0)
                if len(points):
                    self._panel(grid[i, j], points, series)
                    grid[i, j].set_title(fill(column, 32))
        keys = [Line2D([], [], label=name, **_dot(series, name, MUTED)) for name in series]
        figure.legend(handles=keys, loc="outside lower left", ncols=3, title=self.note)
        return figure

    def _panel(self, axes: Axes, points: pd.DataFrame, series: list[str]) -> None:
        names, present = [*points["name"].unique()], [*points["label"].unique()]
        for point in points.itertuples():
            shift = 0.2 * (present.index(point.label) - (len(present) - 1) / 2)
            y, color = names.index(point.name) + shift, FAMILIES.get(point.family, MUTED)
            if not np.isnan(point.low):
                axes.plot([point.low, point.high], [y, y], color=color, linewidth=0.9, alpha=0.6)
            axes.plot(point.x, y, **_dot(series, point.label, color))
        if self.log:
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
            axes.xaxis.set_major_formatter("{x:,g}")
            axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_yticks(range(len(names)), [pretty(fill(name, _WRAP)) for name in names])
        axes.set(ylim=(len(names) - 0.5, -0.5), xlabel=points["row"].iloc[0])
        axes.spines["left"].set_visible(False)
        axes.grid(visible=True, axis="x")
        axes.tick_params(length=0, which="both")


def _dot(series: Sequence[str], name: str, color: str) -> Look:
    hollow = name == "paper"
    return {
        "marker": "D" if hollow else _MARKERS[series.index(name) % len(_MARKERS)],
        "markersize": 4.5,
        "color": color,
        "fillstyle": "none" if hollow else "full",
        "linestyle": "none",
    }


def _subplots(
    title: str, size: tuple[float, float], rows: int, columns: int, **options: Any
) -> tuple[Figure, Any]:
    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle(pretty(fill(title, int(11.5 * size[0]))), x=0.012, ha="left")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def looks_of(points: pd.DataFrame) -> Looks:
    """Return colour, dash and marker of each label: the colour is that of its family."""
    others, numbers, looks = cycle(_OTHERS), dict[str, int](), Looks()
    for label, family in dict.fromkeys(zip(points["label"], points["family"], strict=True)):
        i = numbers[family] = numbers.get(family, -1) + 1
        looks[label, family] = {
            "color": FAMILIES[family] if family else next(others),
            "linestyle": _DASHES[i % len(_DASHES)],
            "marker": _MARKERS[(i if family else len(looks)) % len(_MARKERS)],
            "markersize": 4,
        }
    return looks


def once(points: pd.DataFrame) -> pd.DataFrame:
    """Return points with NPG and UPG drawn as one where no picture would show a difference."""
    wide = points.pivot_table("y", ["row", "column", "x"], "label", sort=False)
    for upg in [label for label in wide if label.startswith("UPG")]:
        npg = upg.replace("UPG", "NPG", 1)
        if npg in wide and np.allclose(wide[npg], wide[upg], rtol=_SAME, atol=0, equal_nan=True):
            both = upg.replace("UPG", "NPG and UPG", 1)
            points = points[points["label"] != npg].replace({"label": {upg: both}})
    return points


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Return heights that are at least ``gap`` apart, in the same order, as near as is simple."""
    order = np.argsort(heights, kind="stable")
    placed = np.clip(np.asarray(heights, dtype=float)[order], 0.0, 1.0)
    for i in range(1, len(placed)):
        placed[i] = max(placed[i], placed[i - 1] + gap)
    placed -= max(0.0, placed[-1] - 1.0 - gap / 2)  # the upper ones push the others down
    for i in range(len(placed) - 2, -1, -1):
        placed[i] = min(placed[i], placed[i + 1] - gap)
    found = np.empty_like(placed)
    found[order] = placed
    return list(map(float, found))


def pretty(text: str) -> str:
    """Return text with ``A(5, 0.5)``, which a line break may divide, as the paper's symbol."""
    return re.sub(r"A\((\d+),\s([\d.]+)\)", r"$A_{\1,\\,\2}$", text)


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


def render(draw: Callable[[], Figure]) -> dict[str, bytes]:
    """Return what ``draw`` returns in every format; the same figure gives the same bytes."""
    files = {}
    with styled():
        figure = draw()
        _fix_layout(figure)
        for kind, metadata in _FORMATS.items():
            buffer = io.BytesIO()
            figure.savefig(buffer, format=kind, metadata=metadata)
            files[kind] = buffer.getvalue()
    return files


def _fix_layout(figure: Figure) -> None:
    """Lay out a figure once, in round numbers: the last bits of the solver's result may differ."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for axes in figure.axes:
        axes.set_position(np.round(axes.get_position().bounds, 6).tolist())
