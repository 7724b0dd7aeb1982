"""The look of all figures: colours, line styles and fonts, shared parts, and files.

The colours are those of Okabe and Ito, which colour-blind readers can distinguish; each comes with
a line style or a marker, so that a figure can be read in grey too.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import cycle
from typing import Any, TypeVar

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import Locator, NullLocator

INK, MUTED, FAINT = "#222222", "#6b6b6b", "#e4e4e4"
FORMATS = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
"""The formats of a figure, and the metadata that would make equal figures differ."""

_SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "mathtext.fontset": "dejavusans",
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 8.5,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.7,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8.5,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "figure.facecolor": "white",
    "figure.constrained_layout.h_pad": 0.09,
    "figure.constrained_layout.w_pad": 0.09,
    "savefig.dpi": 200,
    "svg.hashsalt": "phantomgrad",
    "pdf.fonttype": 42,
}

LINES: tuple[tuple[str, Any], ...] = (
    ("#222222", "-"),
    ("#0072B2", (0, (6, 1.5))),
    ("#D55E00", (0, (4, 1.2, 1, 1.2))),
    ("#009E73", (0, (1.2, 1.1))),
    ("#CC79A7", (0, (8, 2, 1.2, 2, 1.2, 2))),
    ("#E69F00", (0, (3, 2))),
    ("#56B4E9", "-"),
    ("#6b6b6b", (0, (1, 2.5))),
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")
DOTTED: dict[str, Any] = {"color": MUTED, "linestyle": (0, (1, 2))}
"""The look of reference lines."""

Look = dict[str, Any]
_Key = TypeVar("_Key", bound=Hashable)


def looks(
    keys: Iterable[_Key], lines: Sequence[tuple[str, Any]] = LINES, *, markers: bool = True
) -> dict[_Key, Look]:
    """Return a colour and line style for each key, and a marker."""
    found: dict[_Key, Look] = {}
    for key, (color, style), marker in zip(
        dict.fromkeys(keys), cycle(lines), cycle(MARKERS), strict=False
    ):
        found[key] = {"color": color, "linestyle": style} | ({"marker": marker} if markers else {})
    return found


def panels(
    rows: int, columns: int, size: tuple[float, float], title: str, **options: Any
) -> tuple[Figure, Any]:
    """Return a figure with its title at the left, and its grid of axes."""
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, **options)
    figure.suptitle(title, x=0.012, ha="left", fontsize=10.5, fontweight="bold")
    return figure, grid


def bare(axes: Axes, grid: str) -> None:
    """Give ``axes`` a light grid along ``grid`` (``x`` or ``y``) and no tick marks."""
    axes.grid(visible=True, axis="x" if grid == "x" else "y")
    axes.tick_params(length=0)


def logarithmic(axes: Axes, major: Locator, numbers: bool = False) -> None:
    """Give the y axis a logarithmic scale with only ``major`` ticks, as plain ``numbers`` or not."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(major)
    axes.yaxis.set_minor_locator(NullLocator())
    if numbers:
        axes.yaxis.set_major_formatter("{x:g}")


def subtitled(axes: Axes, text: str) -> None:
    """Set a quieter title at the right of a panel."""
    axes.set_title(
        textwrap.fill(text, 44), loc="right", fontsize=7.5, fontweight="normal", color=MUTED
    )


def handle(label: str, **look: Any) -> Line2D:
    """Return an entry of a legend."""
    return Line2D([], [], label=label, **look)


def legend(figure: Figure, handles: Sequence[Line2D], columns: int, title: str) -> None:
    """Set one legend below all panels; ``title`` explains spreads."""
    box = figure.legend(
        handles=list(handles), loc="outside lower center", ncols=columns, handlelength=3.2
    )
    box.set_title(title)
    box.get_title().set(color=MUTED, fontsize=7.5)


def pretty(text: str) -> str:
    """Return text with ``A(5, 0.5)`` as the paper's symbol, and literal dollars."""
    return re.sub(r"A\((\d+), ([\d.]+)\)", r"$A_{\1,\\,\2}$", text.replace("$", r"\$"))


def render(draw: Callable[[], Figure]) -> dict[str, bytes]:
    """Return a figure in every format; the same figure gives the same bytes."""
    files = {}
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)
        figure = draw()
        for kind, metadata in FORMATS.items():
            buffer = io.BytesIO()
            figure.savefig(buffer, format=kind, metadata=metadata)
            files[kind] = buffer.getvalue()
    return files
