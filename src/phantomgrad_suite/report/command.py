"""The command: read everything, draw everything, then write everything."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import yaml

from phantomgrad_suite.report.catalogue import CATALOGUE
from phantomgrad_suite.report.claims.claims_table import judge, table_of_claims
from phantomgrad_suite.report.document import Table, latex, markdown
from phantomgrad_suite.report.extensions import load_extensions
from phantomgrad_suite.report.figures import plots_of
from phantomgrad_suite.report.figures.forest import forest
from phantomgrad_suite.report.figures.style import Plot, render
from phantomgrad_suite.report.page import page
from phantomgrad_suite.report.tables import known_tables, load
from phantomgrad_suite.report.yours import (
    Agreement,
    agreement_of_all,
    with_your_claims,
    with_yours,
)
from phantomgrad_suite.runs.archive import Archive
from phantomgrad_suite.runs.configs import IS_CHECKOUT
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.files import write_file

USAGE = """usage: python scripts/report.py [TABLE ...] [results=DIR] [yours=DIR]

Makes DIR/tables/<table>.{md,tex} and DIR/figures/<table>*.{svg,pdf} from DIR/records and
the files of rows, for all tables if none is named, and DIR/claims.md from DIR/claims.yaml.
DIR/index.html shows all of them.
With yours=DIR the folder of results is only read: the tables of DIR/records, next to the
published ones, are made in that DIR, and how far they agree is printed."""


def main(arguments: Sequence[str], default: Path) -> int:
    """Make the tables named in ``arguments``, or all of them; ``default`` is the folder of results.

    Returns:
        0; 1 if an input cannot be used (then nothing is written); 2 for a wrong argument.
    """
    if {"-h", "--help", "help"} & set(arguments):
        print(USAGE)
        return 0
    load_extensions()
    folders = [a.removeprefix("results=") for a in arguments if a.startswith("results=")]
    yours = [Path(a.removeprefix("yours=")) for a in arguments if a.startswith("yours=")]
    names = [a for a in arguments if not a.startswith(("results=", "yours="))]
    results = Path(folders[-1]) if folders else default
    try:
        if not (IS_CHECKOUT or yours or folders):  # it would write into the package
            raise UserError("yours=runs/results shows your results next to the published ones")
        published = Archive(results / "records")
        own = _archive_of(yours[-1]) if yours else None
        known = known_tables(results, published, *filter(None, [own]))
        for name in names:
            if name not in known:
                return _fail(f"there is no table {name}: choose from {', '.join(known)}", 2)
        tables = {key: load(results, key, published) for key in dict.fromkeys([*CATALOGUE, *known])}
        figures = {key: plots_of(table) for key, table in tables.items()}
        if own:
            _report_yours(names or known, tables, figures, results, published, own)
        else:
            _report(names or known, tables, figures, results, published)
    except UserError as error:
        return _fail(str(error), 1)
    except OSError as error:
        return _fail(f"{error.filename or results}: {error.strerror or error}", 1)
    except yaml.YAMLError as error:
        return _fail(f"{results / 'claims.yaml'} is not YAML: {' '.join(str(error).split())}", 1)
    return 0


def _archive_of(folder: Path) -> Archive:
    own = Archive(folder / "records")
    if not own.records:
        raise UserError(
            f"{folder} has no records: yours must be a folder of your results, usually "
            "runs/results, where runs of unchanged rows leave their records "
            "when they are finished"
        )
    return own


def _report(
    names: Sequence[str],
    tables: dict[str, Table],
    figures: dict[str, list[Plot]],
    results: Path,
    published: Archive,
) -> None:
    judgement = judge(results, published)
    written = {name: _files(tables[name], figures[name]) for name in dict.fromkeys(names)}
    for name, files in written.items():
        if len(written) == 1:
            print(markdown(tables[name]))
        for place, content in files.items():
            write_file(results / place, content)
            print(f"wrote {results / place}")
    claims = table_of_claims(judgement) if judgement else None
    if judgement and claims:
        write_file(results / "claims.md", markdown(claims).encode())
        for kind, content in forest(judgement.of_paper, judgement.sentence).items():
            write_file(results / f"figures/claims.{kind}", content)
        print(f"wrote {results / 'claims.md'}: {claims.missing}")
    text = page(results, list(tables.values()), figures, claims)
    write_file(results / "index.html", text.encode())
    print(f"wrote {results / 'index.html'}")


def _report_yours(
    names: Sequence[str],
    tables: dict[str, Table],
    figures: dict[str, list[Plot]],
    results: Path,
    published: Archive,
    archive: Archive,
) -> None:
    yours, claims, theirs = archive.folder.parent, None, judge(results, published)
    if theirs and (repeated := judge(results, published, archive)):
        claims = with_your_claims(table_of_claims(theirs, yours), table_of_claims(repeated, yours))
        write_file(yours / "claims.md", markdown(claims).encode())
    for figure in (results / "figures").glob("*.*"):
        write_file(yours / "figures" / figure.name, figure.read_bytes())
    agreements: dict[str, Agreement] = {}
    for key in known_tables(results, published, archive):
        own = load(results, key, published, archive)
        if own.studies or len(own.runs):
            tables[key], agreements[key] = with_yours(tables[key], own)
            figures[key] = [replace(p, caption=f"Your runs. {p.caption}") for p in plots_of(own)]
            for place, content in _files(tables[key], figures[key]).items():
                write_file(yours / place, content)
    shown = {key: agreements.get(key, "none of your runs is finished") for key in names}
    if len(shown) == 1 and agreements.keys() & shown.keys():
        print(markdown(tables[names[0]]))
    agreed = agreement_of_all([agreements[key] for key in names if key in agreements])
    first = f"Your runs: {agreed}."
    text = page(results, list(tables.values()), figures, claims, first)
    write_file(yours / "index.html", text.encode())
    print(first)
    for key, agreement in shown.items():
        print(f"{tables[key].entry.label}: {agreement}")
    print(f"your numbers next to the published ones: {yours / 'index.html'}")


def _files(table: Table, figures: Sequence[Plot]) -> dict[str, bytes]:
    files = {
        f"tables/{table.key}.md": markdown(table).encode(),
        f"tables/{table.key}.tex": latex(table).encode(),
    }
    for plot in figures:
        for kind, content in render(plot.draw).items():
            files[f"figures/{plot.name}.{kind}"] = content
    return files


def _fail(message: str, status: int) -> int:
    print(f"report: {message}", file=sys.stderr)
    return status
