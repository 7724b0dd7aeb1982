"""The command: read everything, draw everything, then write everything."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from matplotlib.figure import Figure

from phantomgrad_suite.report.assemble import build_table
from phantomgrad_suite.report.collect import read_study_records, read_table_records
from phantomgrad_suite.report.curves import curve_figure
from phantomgrad_suite.report.errors import ReportError
from phantomgrad_suite.report.figures import dot_figure
from phantomgrad_suite.report.files import write_whole
from phantomgrad_suite.report.latex import to_latex
from phantomgrad_suite.report.layout import Table
from phantomgrad_suite.report.markdown import to_markdown
from phantomgrad_suite.report.paper import PaperNumber, read_paper
from phantomgrad_suite.report.precision import precision_figures
from phantomgrad_suite.report.published import read_published
from phantomgrad_suite.report.site import build_site
from phantomgrad_suite.report.studies import REPORTS
from phantomgrad_suite.report.style import render, styled
from phantomgrad_suite.report.sweeps import sweep_figures
from phantomgrad_suite.report.tuning import tuning_figures
from phantomgrad_suite.runs.records import StudyRecord

USAGE = """usage: python scripts/report.py [TABLE ...] [results=DIR]

Makes DIR/tables/<table>.{md,tex} and DIR/figures/<table>*.{png,svg,pdf} from DIR/records and
DIR/paper.csv; all tables (and figures and studies) without a name.
DIR/index.html shows them all."""


@dataclass(frozen=True)
class Results:
    """The folder of results: what is read in it, and where the report goes."""

    folder: Path

    @property
    def records(self) -> Path:
        """The records of finished runs."""
        return self.folder / "records"

    def tables(self, paper: Sequence[PaperNumber]) -> list[str]:
        """Return every table that the paper or a record knows."""
        ours = [p.name for p in self.records.iterdir()] if self.records.is_dir() else []
        with_records = {name for name in ours if any((self.records / name).rglob("*.json"))}
        return sorted({number.table for number in paper} | with_records)


def main(arguments: Sequence[str], default: Path) -> int:
    """Make the tables named in ``arguments``, all without a name; return the exit status.

    Args:
        arguments: names of tables, and ``results=DIR``.
        default: the folder of results where ``arguments`` name none.

    Returns:
        0; 1 if an input cannot be used (nothing is written then); 2 for a wrong argument.
    """
    if {"-h", "--help", "help"} & set(arguments):
        print(USAGE)
        return 0
    folders = [a.removeprefix("results=") for a in arguments if a.startswith("results=")]
    names = [a for a in arguments if not a.startswith("results=")]
    results = Results(Path(folders[-1]) if folders else default)
    try:
        paper = read_paper(results.folder / "paper.csv")
        known = results.tables(paper)
        for name in names:
            if name not in known:
                return _fail(f"there is no table {name}: choose from {', '.join(known)}", 2)
        _report(list(dict.fromkeys(names)) or known, paper, results)
    except ReportError as error:
        return _fail(str(error), 1)
    except OSError as error:
        return _fail(f"{error.filename or results.folder}: {error.strerror or error}", 1)
    return 0


def _report(names: Sequence[str], paper: Sequence[PaperNumber], results: Results) -> None:
    pages = {name: _page(name, paper, results) for name in names}
    for page in pages.values():
        for place, content in page.files.items():
            write_whole(content, results.folder / place)
    for page in pages.values():
        print(page.text)
        print("\n".join(f"wrote {results.folder / place}" for place in page.files), end="\n\n")
    site = results.folder / "index.html"
    write_whole(build_site(results.folder), site)
    print(f"wrote {site}")


@dataclass(frozen=True)
class _Page:
    """A table in words, and all files it is made of, by their place among the results."""

    text: str
    files: dict[str, bytes]


def _page(name: str, paper: Sequence[PaperNumber], results: Results) -> _Page:
    records = results.records
    if name in REPORTS:
        return _study_page(name, read_study_records(records, name))
    throughput = read_study_records(records, "throughput")
    with _whole("throughput"):
        table = build_table(name, paper, read_table_records(records, name), throughput)
    table = replace(table, published=read_published(results.folder / "published_curves.csv"))
    files = {
        f"tables/{name}.md": to_markdown(table).encode(),
        f"tables/{name}.tex": to_latex(table).encode(),
    }
    draw = FIGURES.get(name, table_figures)
    return _Page(to_markdown(table), files | _drawn(lambda: draw(table)))


def _study_page(name: str, records: Sequence[StudyRecord]) -> _Page:
    report = REPORTS[name]
    with _whole(name):
        text = report.table(records)
        drawn = _drawn(lambda: report.figures(records))
    return _Page(text, {f"tables/{name}.md": text.encode()} | drawn)


@contextmanager
def _whole(name: str) -> Iterator[None]:
    """Turn what goes wrong with a study's record of another version into a sentence."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise ReportError(
            f"a record of {name} lacks what its table shows ({error!r}), as one of another version "
            f"may: delete records/{name} and run `python scripts/study.py` again"
        ) from error


def _drawn(draw: Callable[[], dict[str, Figure]]) -> dict[str, bytes]:
    with styled():
        return {
            f"figures/{figure}.{kind}": content
            for figure, drawing in draw().items()
            for kind, content in render(drawing).items()
        }


FIGURES: dict[str, Callable[[Table], dict[str, Figure]]] = {
    "figure2": precision_figures,
    "figure3": sweep_figures,
    "tune": tuning_figures,
}
"""How a table is drawn that is a figure of the paper, or a search; any other by
:func:`table_figures`."""


def table_figures(table: Table) -> dict[str, Figure]:
    """Return the dots of a table, the curves of each block, and what was looked at in training."""
    drawn = {table.name: dot_figure(table)}
    for block in table.blocks:
        curves = curve_figure(table, block)
        if curves is not None:
            key = f"_{block.key.replace('/', '_')}" if block.key else ""
            drawn[f"{table.name}{key}_curves"] = curves
    return drawn | precision_figures(table)


def _fail(message: str, status: int) -> int:
    print(f"report: {message}", file=sys.stderr)
    return status
