"""The look of all figures, and their files.

The colours are those of Okabe and Ito, which colour-blind readers can distinguish; each comes with
a line style or a marker, so that a figure can be read in grey too.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any, TypeVar

import matplotlib as mpl
from matplotlib.figure import Figure

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
# Of reference lines.
DOTTED: dict[str, Any] = {"color": MUTED, "linestyle": (0, (1, 2)), "linewidth": 0.9, "zorder": 0}
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
