"""A table of the report as frames of text with their notes, and as Markdown, LaTeX and HTML."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd
from markdown_it import MarkdownIt

from phantomgrad_suite.report.catalogue import Entry
from phantomgrad_suite.runs.records import StudyRecord

DASH = "—"
_HTML = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")


@dataclass(frozen=True)
class Section:
    """A title, a text, a frame of cells as text, and notes; all optional.

    The index of the frame holds the titles of blocks of rows. The first ``words`` columns hold
    words, those after them numbers.
    """

    title: str = ""
    text: str = ""
    frame: pd.DataFrame = field(default_factory=pd.DataFrame)
    words: int = 1
    notes: tuple[str, ...] = ()

    @property
    def blocks(self) -> Iterator[tuple[str, pd.DataFrame]]:
        """The rows under each title."""
        if len(self.frame):
            yield from self.frame.groupby(level=0, sort=False)


def section(
    title: str,
    rows: Sequence[Mapping[str, str]],
    words: int = 1,
    *,
    text: str = "",
    notes: Sequence[str] = (),
    blocks: Sequence[str] = (),
    always: Collection[str] = (),
) -> Section:
    """Return a section of rows, of which ``blocks`` are the titles.

    Columns without text are left out unless they are among ``always``.
    """
    frame = pd.DataFrame(rows, index=[*blocks] or [""] * len(rows), dtype=object).fillna("")
    kept = [name for name in frame if name in always or frame[name].ne("").any()]
    words = sum(name in kept for name in frame.columns[:words])
    return Section(title, text, frame[kept].replace("", DASH), words, tuple(notes))


@dataclass(frozen=True)
class Table:
    """A table of the report; its results are the first of ``sections``.

    A table of runs has a line for each experiment and each run in the frames ``experiments`` and
    ``runs``.
    """

    entry: Entry
    sections: tuple[Section, ...] = ()
    experiments: pd.DataFrame = field(default_factory=pd.DataFrame)
    runs: pd.DataFrame = field(default_factory=pd.DataFrame)
    studies: tuple[StudyRecord, ...] = ()

    @property
    def key(self) -> str:
        return self.entry.key


def markdown(table: Table) -> str:
    """Return the title and caption of a table and all of its sections."""
    return f"# {table.entry.heading}\n\n{body(table)}"


def body(table: Table) -> str:
    """Return what follows the title of a table, as Markdown."""
    parts = [table.entry.caption]
    for part in table.sections:
        parts += [f"## {part.title}" if part.title else "", part.text]
        for title, rows in part.blocks:
            parts += [f"**{title}**" if title else "", _grid(rows, part.words)]
        parts.append("\n".join(f"- {note}" for note in part.notes))
    return "\n\n".join(part for part in parts if part) + "\n"


def _grid(rows: pd.DataFrame, words: int) -> str:
    """Return rows as a table of Markdown."""
    aligned = ["left"] * words + ["right"] * (rows.shape[1] - words)
    cells = rows.map(lambda cell: cell.replace("|", "\\|"))
    return str(cells.to_markdown(index=False, disable_numparse=True, colalign=aligned))


def latex(table: Table) -> str:
    """Return a ``table`` environment for each block, for XeLaTeX or LuaLaTeX with booktabs."""
    blocks = [(part, *block) for part in table.sections for block in part.blocks]
    return "\n".join(
        rows.to_latex(
            index=False,
            escape=True,
            caption=_escaped(": ".join(filter(None, (table.entry.heading, part.title, title)))),
            label=f"tab:{table.key}" + (f"-{number}" if number > 1 else ""),
            column_format="l" * part.words + "r" * (rows.shape[1] - part.words),
        )
        for number, (part, title, rows) in enumerate(blocks, start=1)
    )


_TEX = str.maketrans(
    {c: f"\\{c}" for c in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"}
)


def _escaped(text: str) -> str:
    """Return text for TeX; pandas escapes cells, but no captions."""
    return text.translate(_TEX)


def html(text: str) -> str:
    """Return Markdown as HTML, with tables that scroll by themselves where they are too wide."""
    found: str = _HTML.render(text)
    found = found.replace("<table>", '<div class="scroll" role="region" tabindex="0"><table>')
    return found.replace("</table>", "</table></div>")
