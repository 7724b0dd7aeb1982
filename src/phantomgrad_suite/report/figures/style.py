"""The look of all figures: colours by family of gradients, names at the ends of lines, one font.

The colours are those of Okabe and Ito, which colour-blind readers can distinguish; each comes with
a dash and a marker, so that a figure can be read in grey too.
"""

import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, product
from pathlib import Path
from textwrap import fill
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
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

_OTHERS = ("#CC79A7", "#E69F00", "#56B4E9", MUTED, "#8C510A", "#B5A72B")
_DASHES = ("", (6, 1.5), (4, 1.2, 1, 1.2), (1.2, 1.1), (8, 2, 1.2, 2, 1.2, 2))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_SAME = 1e-3  # relative difference of curves, below what a figure shows
_LONG = 1e6  # from which on values of x are powers of ten
_FEW = 12  # points of a curve that get markers, and values of x that get ticks
_PANEL = 2.6, 2.1  # inches
_TITLE = 32  # letters of the title of a panel, or of the label of its axis
_LINE = 0.15  # inches between names at the ends of curves
FORMATS: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
"""The formats of a figure, without the metadata that would make equal figures differ."""
_STYLE = Path(__file__).parents[1] / "templates" / "figures.mplstyle"


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

    def draw(self) -> Figure:
        rows, columns = self.points["row"].unique(), self.points["column"].unique()
        longest = self.points["label"].str.len().max()
        size = (
            max(6.4, 1.4 + _PANEL[0] * len(columns) + 0.075 * longest * len(self._named(rows[0]))),
            0.75 + _PANEL[1] * len(rows) + 0.35 * (len(rows) == 1),
        )
        # Names at the right may be wider in the reader's font.
        figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(rect=(0, 0, 0.985, 1)))
        figure.suptitle(pretty(fill(self.title, int(11.5 * size[0]))), x=0.012, ha="left")
        grid = figure.subplots(len(rows), len(columns), squeeze=False, sharey=self.share)
        found = dict(iter(self.points.groupby(["row", "column"], sort=False)))
        panels = dict(zip(product(rows, columns), grid.flat, strict=True))
        for place in panels.keys() - found.keys():
            panels.pop(place).set_visible(False)
        looks, lowest = looks_of(self.points), {column: row for row, column in panels}
        highest = {column: row for row, column in reversed(panels)}
        for (row, column), axes in panels.items():
            self._draw(axes, found[row, column], looks)
            label = "\n".join(pretty(fill(line, _TITLE)) for line in row.split("\n"))
            axes.set_ylabel(label if column == columns[0] else "")
            axes.set_xlabel((self.x or pretty(column)) if row == lowest[column] else "")
            if self.x and row == highest[column]:
                axes.set_title(pretty(fill(column, _TITLE)))
        for (row, column), axes in panels.items():  # whose limits no panel changes now
            if column in self._named(row):
                _name(axes, found[row, column].dropna(subset="y"), looks)
        figure.supxlabel(self.note, fontsize=7.5, color=MUTED, x=0.012, ha="left")
        return figure

    def _named(self, row: str) -> list[str]:
        """Return the columns that name their curves: not those whose right neighbour has them."""
        labels = self.points[self.points["row"] == row].groupby("column", sort=False)["label"]
        sets = [(column, {*found}) for column, found in labels]
        after = [*(found for _, found in sets[1:]), set[str]()]
        return [c for (c, found), others in zip(sets, after, strict=True) if not found <= others]

    def _draw(self, axes: Axes, points: pd.DataFrame, looks: pd.DataFrame) -> None:
        markers = looks["marker"][looks["marker"] != ""].to_dict()
        for few, part in points.groupby(points["label"].isin(markers)):
            sns.lineplot(
                part,
                **{"x": "x", "y": "y", "hue": "label", "style": "label", "ax": axes},
                palette=looks["color"].to_dict(),
                dashes=looks["dashes"].to_dict(),
                markers=markers if few else False,
                **{"markeredgewidth": 0, "estimator": None, "sort": False, "legend": False},
            )
        for label, band in points.dropna(subset="low").groupby("label", sort=False):
            look = {"color": looks.loc[label, "color"], "alpha": 0.12, "linewidth": 0}
            axes.fill_between(band["x"], band["low"], band["high"], **look)
        axes.set(**{f"{name}scale": "log" for name in self.log})
        axes.grid(visible=True, axis="y")
        axes.tick_params(length=0, which="both")
        _ticks(axes, points["x"])


def _ticks(axes: Axes, x: pd.Series) -> None:
    """Put ticks at the values of x where they are few whole numbers, else at round ones."""
    is_log, known, is_whole = axes.get_xscale() == "log", x.unique(), bool((x % 1 == 0).all())
    if is_log and is_whole and len(known) <= _FEW:
        axes.set_xticks(known, [_tick(tick, largest=known.max()) for tick in known])
        axes.minorticks_off()
        return
    low, high = axes.get_xlim()
    whole = MaxNLocator(5, integer=is_whole, steps=[1, 2, 5, 10])
    subs = (1, 2, 5) if high < 10 * low else (1, 3) if high < 300 * low else (1,)
    decades = LogLocator(subs=subs)
    axes.xaxis.set_major_locator(decades if is_log else whole)
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.xaxis.set_minor_formatter(NullFormatter())


def _tick(value: float, largest: float) -> str:
    """Return a number in full, or as a power of ten where the largest one is too long for that."""
    if largest < _LONG:
        return f"{value:,g}"
    power = np.log10(value)
    return f"$10^{{{power:.0f}}}$" if power % 1 == 0 else f"{value:.1e}"


def _name(axes: Axes, points: pd.DataFrame, looks: pd.DataFrame) -> None:
    """Write the names of curves at their ends, each with a piece of its line."""
    ends = points.drop_duplicates("label", keep="last")
    axes.get_xlim(), axes.get_ylim()  # settles the limits, which the transformation needs
    to_axes = axes.transData + axes.transAxes.inverted()
    heights = to_axes.transform(ends[["x", "y"]].to_numpy())[:, 1]
    size = axes.get_window_extent()
    width, height = size.width / axes.figure.dpi, size.height / axes.figure.dpi
    sample = [1 + 0.06 / width, 1 + 0.34 / width]
    for label, at in zip(ends["label"], spread(heights, _LINE / height), strict=True):
        color, dashes, marker = looks.loc[label, ["color", "dashes", "marker"]]
        dash = (0, dashes) if dashes else "-"
        look: dict[str, Any] = {
            "color": color,
            "linestyle": dash,
            "marker": marker,
            "markersize": 4,
        }
        line = Line2D(sample, [at, at], transform=axes.transAxes, clip_on=False, **look)
        axes.add_line(line)
        place: dict[str, Any] = {"transform": axes.transAxes, "va": "center", "fontsize": 7.5}
        axes.text(sample[1] + 0.08 / width, at, pretty(label), **place)


def looks_of(points: pd.DataFrame) -> pd.DataFrame:
    """Return colour, dashes and marker of each label: the colour is that of its family."""
    looks, others = points.drop_duplicates("label").set_index("label"), cycle(_OTHERS)
    of_family = looks.groupby("family").cumcount()
    longest = points.groupby(["label", "row", "column"]).size().groupby("label").max()
    return pd.DataFrame(
        {
            "color": [FAMILIES.get(family) or next(others) for family in looks["family"]],
            "dashes": [_DASHES[i % len(_DASHES)] for i in of_family],
            # Of curves with few points; others would be hidden by theirs.
            "marker": [
                _MARKERS[i % len(_MARKERS)] if few else ""
                for i, few in zip(of_family, longest[looks.index] <= _FEW, strict=True)
            ],
        },
        looks.index,
        dtype=object,
    )


def once(points: pd.DataFrame) -> pd.DataFrame:
    """Return points with NPG and UPG drawn as one where no picture would show a difference."""
    wide = points.pivot_table("y", ["row", "column", "x"], "label", sort=False)
    for upg in [label for label in wide if label.startswith("UPG")]:
        npg = upg.replace("UPG", "NPG", 1)
        if npg in wide and np.allclose(wide[npg], wide[upg], rtol=_SAME, atol=0, equal_nan=True):
            both = upg.replace("UPG", "NPG and UPG", 1)
            points = points[points["label"] != npg].replace({"label": {upg: both}})
    return points


def spread(heights: Sequence[float] | np.ndarray, gap: float) -> np.ndarray:
    """Return heights from 0 to 1 that are at least ``gap`` apart, in the same order."""
    order, steps = np.argsort(heights, kind="stable"), gap * np.arange(len(heights))
    placed = np.maximum.accumulate(np.clip(heights, 0.0, 1.0)[order] - steps)
    top = 1 + gap / 2 - steps[-1]  # the upper ones push the others down
    found = np.empty(len(order))
    found[order] = np.minimum(placed, top) + steps
    return found


def pretty(text: str) -> str:
    """Return text with ``A(5, 0.5)``, which a line break may divide, as the paper's symbol."""
    return re.sub(r"A\((\d+),\s([\d.]+)\)", r"$A_{\1,\\,\2}$", text)


def file_name(*parts: str) -> str:
    """Return a name of letters, digits, ``-`` and ``_`` for the ``parts`` that are not empty."""
    return "_".join(filter(None, parts)).translate(str.maketrans("/ ", "__", ".,()"))


@contextmanager
def styled() -> Iterator[None]:
    """Draw and save figures in this look, whatever the settings of the user."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(mpl.rc_params_from_file(_STYLE, use_default_template=False))
        yield


def render(draw: Callable[[], Figure], formats: Sequence[str] = ("svg",)) -> dict[str, bytes]:
    """Return what ``draw`` returns by format; the same figure gives the same bytes."""
    files = {}
    with styled():
        figure = draw()
        _fix_layout(figure)
        for kind in formats:
            buffer = io.BytesIO()
            figure.savefig(buffer, format=kind, metadata=FORMATS[kind])
            files[kind] = buffer.getvalue()
    return files


def _fix_layout(figure: Figure) -> None:
    """Lay out a figure once, in round numbers: the last bits of the solver's result may differ."""
    if engine := figure.get_layout_engine():
        engine.execute(figure)
    figure.set_layout_engine("none")
    for axes in figure.axes:
        axes.set_position(np.round(axes.get_position().bounds, 6).tolist())
