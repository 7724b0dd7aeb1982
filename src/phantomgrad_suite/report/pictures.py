"""The figures of the page: where they are, how large, and what they show in words."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from phantomgrad_suite.report.assemble import BLOCKS
from phantomgrad_suite.report.errors import ReportError

_PIXELS = {"": 1.0, "px": 1.0, "pt": 4 / 3, "in": 96.0, "cm": 96 / 2.54, "mm": 96 / 25.4}
_LENGTH = re.compile(r"([\d.]+)\s*([a-z]*)")
_FITS = 640  # pixels of width that can be read when shrunk to a phone
_SHRUNK = 0.7
_WORDS = BLOCKS | {
    "": "the results at a glance",
    "curves": "test metric and training loss by epoch",
    "linear": "F linear",
    "relu": "F with relu",
    "tanh": "F with tanh",
}


@dataclass(frozen=True)
class Picture:
    """A figure: the name of its file without suffix, its links and its size in pixels."""

    stem: str
    image: str
    document: str
    width: int
    height: int

    @property
    def least_width(self) -> int:
        """The width below which it is scrolled rather than shrunk further, 0 for none."""
        return round(self.width * _SHRUNK) if self.width > _FITS else 0

    def caption(self, key: str) -> str:
        """Return what it shows, as its name says.

        Args:
            key: how the names of its artifact's files begin.
        """
        words = [word for word in self.stem.removeprefix(key).split("_") if word]
        return "; ".join(_WORDS.get(word, word) for word in words) or _WORDS[""]


def read_picture(path: Path) -> Picture:
    """Read the size of ``path``; link to the PDF beside it, where there is one.

    Raises:
        ReportError: the file is no SVG with a size.
    """
    try:
        root = ET.parse(path).getroot()
        width, height = (_pixels(root.get(side, "")) for side in ("width", "height"))
    except (OSError, ValueError, ET.ParseError) as error:
        raise ReportError(f"{path} is no SVG with a size ({error}): make it again") from error
    image = f"figures/{quote(path.name)}"
    document = path.with_suffix(".pdf")
    link = f"figures/{quote(document.name)}" if document.is_file() else image
    return Picture(path.stem, image, link, width, height)


def _pixels(length: str) -> int:
    match = _LENGTH.fullmatch(length)
    if match is None or match[2] not in _PIXELS or not float(match[1]):
        raise ValueError(f"length {length!r}")
    return round(float(match[1]) * _PIXELS[match[2]])
