"""The command: read everything, draw everything, then write everything."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from phantomgrad_suite.report import html, latex, markdown
from phantomgrad_suite.report.catalogue import CATALOGUE
from phantomgrad_suite.report.figures import plots_of
from phantomgrad_suite.report.figures.plot import Plot
from phantomgrad_suite.report.figures.style import render
from phantomgrad_suite.report.table import Table
from phantomgrad_suite.report.tables import known_tables, load
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.files import atomic_write

USAGE = """usage: python scripts/report.py [TABLE ...] [results=DIR]

Makes DIR/tables/<table>.{md,tex} and DIR/figures/<table>*.{png,svg,pdf} from DIR/records and
DIR/paper.csv, for all tables if none is named. DIR/index.html shows all of them."""


def main(arguments: Sequence[str], default: Path) -> int:
    """Make the tables named in ``arguments``, or all of them; return the exit status.

    Args:
        arguments: names of tables, and ``results=DIR``.
        default: the folder of results if ``arguments`` name none.

    Returns:
        0; 1 if an input cannot be used (then nothing is written); 2 for a wrong argument.
    """
    if {"-h", "--help", "help"} & set(arguments):
        print(USAGE)
        return 0
    folders = [a.removeprefix("results=") for a in arguments if a.startswith("results=")]
    names = [a for a in arguments if not a.startswith("results=")]
    results = Path(folders[-1]) if folders else default
    try:
        known = known_tables(results)
        for name in names:
            if name not in known:
                return _fail(f"there is no table {name}: choose from {', '.join(known)}", 2)
        _report(names or known, known, results)
    except UserError as error:
        return _fail(str(error), 1)
    except OSError as error:
        return _fail(f"{error.filename or results}: {error.strerror or error}", 1)
    return 0


def _report(names: Sequence[str], known: Sequence[str], results: Path) -> None:
    tables = {key: load(results, key) for key in dict.fromkeys([*CATALOGUE, *known])}
    figures = {key: plots_of(table) for key, table in tables.items()}
    written = {name: _files(name, tables, figures) for name in dict.fromkeys(names)}
    for name, files in written.items():
        for place, content in files.items():
            _write(content, results / place)
        print(markdown.render(tables[name]))
        print("\n".join(f"wrote {results / place}" for place in files), end="\n\n")
    page = results / "index.html"
    _write(html.render(results, list(tables.values()), figures).encode(), page)
    print(f"wrote {page}")


def _files(
    name: str, tables: Mapping[str, Table], figures: Mapping[str, list[Plot]]
) -> dict[str, bytes]:
    """Return the content of all files of a table, by their place among the results."""
    table = tables[name]
    files = {
        f"tables/{name}.md": markdown.render(table).encode(),
        f"tables/{name}.tex": latex.render(table).encode(),
    }
    for drawing in figures[name]:
        for kind, content in render(drawing.draw).items():
            files[f"figures/{drawing.name}.{kind}"] = content
    return files


def _write(content: bytes, path: Path) -> None:
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)


def _fail(message: str, status: int) -> int:
    print(f"report: {message}", file=sys.stderr)
    return status
