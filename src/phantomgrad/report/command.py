"""The command: read everything, draw everything, then write everything."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from phantomgrad.report.assemble import build_table
from phantomgrad.report.collect import read_table_records
from phantomgrad.report.curves import curve_figure
from phantomgrad.report.errors import ReportError
from phantomgrad.report.figures import dot_figure
from phantomgrad.report.files import write_whole
from phantomgrad.report.latex import to_latex
from phantomgrad.report.layout import Table
from phantomgrad.report.markdown import to_markdown
from phantomgrad.report.paper import PaperNumber, read_paper
from phantomgrad.report.style import render, styled

USAGE = """usage: python scripts/report.py [TABLE ...] [results=DIR]

Makes DIR/tables/<table>.{md,tex} and DIR/figures/<table>*.{png,svg,pdf} from DIR/records and
DIR/paper.csv; all tables without a name."""


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
    texts: dict[str, str] = {}
    files: dict[str, dict[Path, bytes]] = {}
    for name in names:
        table = build_table(name, paper, read_table_records(results.records, name))
        texts[name] = to_markdown(table)
        files[name] = {
            results.folder / "tables" / f"{name}.md": texts[name].encode(),
            results.folder / "tables" / f"{name}.tex": to_latex(table).encode(),
        }
        for figure, kinds in _figures(table).items():
            for kind, content in kinds.items():
                files[name][results.folder / "figures" / f"{figure}.{kind}"] = content
    for path, content in (item for name in names for item in files[name].items()):
        write_whole(content, path)
    for name in names:
        print(texts[name])
        print("\n".join(f"wrote {path}" for path in files[name]), end="\n\n")


def _figures(table: Table) -> dict[str, dict[str, bytes]]:
    """Draw the dots of the table, and the curves of each block that has some."""
    with styled():
        drawn = {table.name: render(dot_figure(table))}
        for block in table.blocks:
            curves = curve_figure(table, block)
            if curves is not None:
                key = f"_{block.key.replace('/', '_')}" if block.key else ""
                drawn[f"{table.name}{key}_curves"] = render(curves)
    return drawn


def _fail(message: str, status: int) -> int:
    print(f"report: {message}", file=sys.stderr)
    return status
