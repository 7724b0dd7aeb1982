"""The look of all figures, their shared parts, and their files.

The colours are those of Okabe and Ito, which colour-blind readers can distinguish; each comes with
a line style or a marker, so that a figure can be read in grey too.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any, TypeVar

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import Locator, NullLocator

INK, MUTED, FAINT = "#222222", "#6b6b6b", "#e4e4e4"
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
DOTTED: dict[str, Any] = {"color": MUTED, "linestyle": (0, (1, 2))}  # reference lines
# The formats of a figure, without the metadata that would make equal figures differ.
FORMATS = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
_STYLE = Path(__file__).parents[1] / "templates" / "figures.mplstyle"

Look = dict[str, Any]
_Key = TypeVar("_Key", bound=Hashable)


def looks(
    keys: Iterable[_Key], lines: Sequence[tuple[str, Any]] = LINES, **common: Any
) -> dict[_Key, Look]:
    """Return colour, line style and marker for each key; ``common`` overrides them for all."""
    triples = zip(dict.fromkeys(keys), cycle(lines), cycle(MARKERS), strict=False)
    return {
        key: {"color": color, "linestyle": style, "marker": marker} | common
        for key, (color, style), marker in triples
    }


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


def logarithmic(axes: Axes, major: Locator, formatter: str | None = None) -> None:
    """Give the y axis a logarithmic scale with only ``major`` ticks."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(major)
    axes.yaxis.set_minor_locator(NullLocator())
    if formatter:
        axes.yaxis.set_major_formatter(formatter)


def subtitled(axes: Axes, text: str) -> None:
    """Set a quieter title at the right of a panel."""
    look: Look = {"fontsize": 7.5, "fontweight": "normal", "color": MUTED}
    axes.set_title(textwrap.fill(text, 44), loc="right", **look)


def handle(label: str, **look: Any) -> Line2D:
    """Return an entry of a legend."""
    return Line2D([], [], label=label, **look)


def legend(figure: Figure, handles: Sequence[Line2D], note: str, columns: int = 0) -> None:
    """Set one legend below all panels; ``note`` explains spreads."""
    columns = columns or len(handles)
    box = figure.legend(
        handles=list(handles), loc="outside lower center", ncols=columns, handlelength=3.2
    )
    box.set_title(note)
    box.get_title().set(color=MUTED, fontsize=7.5)


def pretty(text: str) -> str:
    """Return text with ``A(5, 0.5)`` as the paper's symbol, and literal dollars."""
    return re.sub(r"A\((\d+), ([\d.]+)\)", r"$A_{\1,\\,\2}$", text.replace("$", r"\$"))


@contextmanager
def styled() -> Iterator[None]:
    """Draw and save figures in this look, whatever the settings of the user."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(mpl.rc_params_from_file(_STYLE, use_default_template=False))
        yield


def render(draw: Callable[[], Figure]) -> dict[str, bytes]:
    """Return a figure in every format; the same figure gives the same bytes."""
    files = {}
    with styled():
        figure = draw()
        for kind, metadata in FORMATS.items():
            buffer = io.BytesIO()
            figure.savefig(buffer, format=kind, metadata=metadata)
            files[kind] = buffer.getvalue()
    return files
