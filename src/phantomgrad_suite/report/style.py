"""One look for all figures: colours, marks and fonts, and their files.

The colours are Okabe and Ito's, which the colour-blind can tell apart; a mark or a line style goes
with each, so that a figure can be read in grey too.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

INK = "#222222"
MUTED = "#6b6b6b"
FAINT = "#e4e4e4"
FORMATS = ("png", "svg", "pdf")

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


@dataclass(frozen=True)
class Mark:
    """How one kind of value is drawn."""

    label: str
    color: str
    marker: str
    filled: bool = True


BEST = Mark("best epoch of each run", "#0072B2", "o")
LAST = Mark("last epoch", "#D55E00", "s")
SELECTED = Mark("epoch selected on validation data", "#009E73", "^")
PAPER = Mark("paper", INK, "D", filled=False)

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


@contextmanager
def styled() -> Iterator[None]:
    """Draw and save figures in this look."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)
        yield


def bare(axes: Axes, grid: str) -> None:
    """Give ``axes`` a light grid along ``grid`` (``x`` or ``y``) and no tick marks."""
    axes.grid(visible=True, axis="x" if grid == "x" else "y")
    axes.tick_params(length=0)


def titled(figure: Figure, title: str) -> None:
    """Set the title of a figure at its left."""
    figure.suptitle(title, x=0.012, ha="left", fontsize=10.5, fontweight="bold")


def subtitled(axes: Axes, text: str) -> None:
    """Set a quieter title at the right of a panel."""
    axes.set_title(
        textwrap.fill(text, 44), loc="right", fontsize=7.5, fontweight="normal", color=MUTED
    )


def legend(figure: Figure, handles: Sequence[Line2D], columns: int, title: str) -> None:
    """Set one legend below all panels, ``title`` saying what spreads mean."""
    box = figure.legend(
        handles=list(handles), loc="outside lower center", ncols=columns, handlelength=3.2
    )
    box.set_title(title)
    box.get_title().set(color=MUTED, fontsize=7.5)


def pretty(text: str) -> str:
    """Write ``A(5, 0.5)`` as the paper's symbol; other text as it is, its dollars literal."""
    return re.sub(r"A\((\d+), ([\d.]+)\)", r"$A_{\1,\\,\2}$", text.replace("$", r"\$"))


def render(figure: Figure) -> dict[str, bytes]:
    """Return the figure in every format; equal figures give equal bytes."""
    files = {}
    for kind in FORMATS:
        buffer = io.BytesIO()
        metadata = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
        figure.savefig(buffer, format=kind, metadata=metadata[kind])
        files[kind] = buffer.getvalue()
    return files
