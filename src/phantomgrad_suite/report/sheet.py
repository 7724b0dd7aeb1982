"""A Markdown table as the page shows it: columns that only repeat become headings of rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

from markupsafe import Markup

_NARROW = 4  # columns that a phone can show at once
_SYMBOL = 3  # letters of a heading that is one
_LONG = 30  # letters of a cell that needs room to be wrapped in


@dataclass(frozen=True)
class Cell:
    """A cell as HTML and as it stands in the source."""

    html: Markup
    text: str


Row = tuple[Cell, ...]


@dataclass(frozen=True)
class Sheet:
    """A table: its caption, its headings, which columns are numbers, and its rows."""

    kind: ClassVar[str] = "sheet"
    caption: str
    caption_shown: bool
    headings: Row
    numeric: tuple[bool, ...]
    rows: tuple[Row, ...]

    @property
    def folded(self) -> int:
        """The number of leading columns that become headings of groups of rows.

        All columns of text before the last one, if that makes fewer groups than there are rows.
        """
        text = next((i for i, numeric in enumerate(self.numeric) if numeric), len(self.numeric))
        depth = max(text - 1, 0)
        groups = sum(1 for _ in groupby(_keys(self.rows, depth)))
        return depth if groups < len(self.rows) else 0

    @property
    def columns(self) -> list[tuple[Cell, bool, bool]]:
        """The headings left, whether each is a number, and whether it is the paper's."""
        triples = zip(self.headings, self.numeric, strict=True)
        return [(h, numeric, is_paper(h.text)) for h, numeric in triples][self.folded :]

    @property
    def groups(self) -> list[tuple[Markup, list[Row]]]:
        """The rows without the folded columns, below what these say."""
        depth = self.folded
        keyed = zip(_keys(self.rows, depth), self.rows, strict=True)
        found = []
        for _, members in groupby(keyed, key=lambda pair: pair[0]):
            rows = [row for _, row in members]
            found.append((self._title(rows[0][:depth]), [row[depth:] for row in rows]))
        return found

    @property
    def stub(self) -> str:
        """The looks of the first column, which stays in sight when the others are scrolled."""
        if self.numeric[self.folded]:
            return "stub short"
        longest = max((len(row[self.folded].text) for row in self.rows), default=0)
        return "stub long" if longest > _LONG else "stub"

    @property
    def wide(self) -> bool:
        """Whether a phone cannot show it at once."""
        return len(self.columns) > _NARROW

    @property
    def records(self) -> list[dict[str, str]]:
        """The rows by heading, as text."""
        headings = [heading.text for heading in self.headings]
        return [dict(zip(headings, [cell.text for cell in row], strict=True)) for row in self.rows]

    def _title(self, cells: Row) -> Markup:
        """Join cells that say something; one below a symbol is said to be its value."""
        named = zip(self.headings, cells, strict=False)
        return Markup(" · ").join(
            Markup("{} = {}").format(h.html, c.html) if len(h.text) <= _SYMBOL else c.html
            for h, c in named
            if c.text
        )


def is_paper(heading: str) -> bool:
    """Return whether a column holds the paper's numbers."""
    return heading.casefold().startswith("paper") or heading.casefold().endswith(", paper")


def _keys(rows: tuple[Row, ...], depth: int) -> Iterator[tuple[str, ...]]:
    """Yield the first ``depth`` cells of each row; an empty one says the same as the one above."""
    above: tuple[str, ...] = ("",) * depth
    for row in rows:
        above = tuple(cell.text or last for cell, last in zip(row, above, strict=False))
        yield above
