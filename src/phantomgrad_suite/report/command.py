"""The command: read everything, draw everything, then write everything."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import yaml

from phantomgrad_suite.report import html, latex, markdown
from phantomgrad_suite.report.baselines import read_baselines
from phantomgrad_suite.report.catalogue import CATALOGUE, entry_of
from phantomgrad_suite.report.claims.claims_table import judge, table_of_claims
from phantomgrad_suite.report.experiments.results import table_of_runs
from phantomgrad_suite.report.extensions import load_extensions
from phantomgrad_suite.report.figures import plots_of
from phantomgrad_suite.report.figures.forest import forest
from phantomgrad_suite.report.figures.plot import Plot, render
from phantomgrad_suite.report.inputs import read_paper, read_published
from phantomgrad_suite.report.studies import STUDIES, table_of_studies
from phantomgrad_suite.report.table import Table
from phantomgrad_suite.report.yours import Agreement, with_your_claims, with_yours
from phantomgrad_suite.runs.archive import Archive
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.files import atomic_write
from phantomgrad_suite.runs.identity import SCALES, split_row
from phantomgrad_suite.runs.records import Record, StudyRecord

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
        published = Archive(results / "records")
        own = Archive(yours[-1] / "records") if yours else None
        if own and not own.records:
            raise UserError(
                f"{yours[-1]} has no records: yours must be a folder of your results, usually "
                "runs/results, where runs of unchanged rows leave their records "
                "when they are finished"
            )
        known = known_tables(results, published, *filter(None, [own]))
        for name in names:
            if name not in known:
                return _fail(f"there is no table {name}: choose from {', '.join(known)}", 2)
        if own:
            _report_yours(names or known, known, results, published, own)
        else:
            _report(names or known, known, results, published)
    except UserError as error:
        return _fail(str(error), 1)
    except OSError as error:
        return _fail(f"{error.filename or results}: {error.strerror or error}", 1)
    except yaml.YAMLError as error:
        return _fail(f"{results / 'claims.yaml'} is not YAML: {' '.join(str(error).split())}", 1)
    return 0


def _report(names: Sequence[str], known: Sequence[str], results: Path, published: Archive) -> None:
    tables = {key: load(results, key, published) for key in dict.fromkeys([*CATALOGUE, *known])}
    figures = {key: plots_of(table) for key, table in tables.items()}
    judgement = judge(results, published)
    written = {name: _files(tables[name], figures[name]) for name in dict.fromkeys(names)}
    for name, files in written.items():
        for place, content in files.items():
            _write(content, results / place)
        if len(written) == 1:
            print(markdown.render(tables[name]))
        print("\n".join(f"wrote {results / place}" for place in files))
    page = results / "index.html"
    claims = table_of_claims(judgement) if judgement else None
    if judgement and claims:
        _write(markdown.render(claims).encode(), results / "claims.md")
        for kind, content in forest(judgement.parts, judgement.sentence).items():
            _write(content, results / f"figures/claims.{kind}")
        print(f"wrote {results / 'claims.md'}: {claims.missing}")
    _write(html.render(results, list(tables.values()), figures, claims=claims).encode(), page)
    print(f"wrote {page}")


def _report_yours(
    names: Sequence[str], known: Sequence[str], results: Path, published: Archive, archive: Archive
) -> None:
    yours = archive.folder.parent
    tables = {key: load(results, key, published) for key in dict.fromkeys([*CATALOGUE, *known])}
    figures = {key: plots_of(table) for key, table in tables.items()}
    claims, theirs = None, judge(results, published)
    if theirs and (repeated := judge(results, published, archive)):
        claims = with_your_claims(table_of_claims(theirs, yours), table_of_claims(repeated, yours))
    _copy("claims", results, yours)
    for plot in (plot for plots in figures.values() for plot in plots):
        _copy(plot.name, results, yours)
    agreements: dict[str, Agreement] = {}
    for key in known:
        own = load(results, key, published, archive)
        if own.studies or any(line.runs for line in own.lines):
            tables[key], agreements[key] = with_yours(tables[key], own)
            figures[key] = [replace(p, caption=f"Your runs. {p.caption}") for p in plots_of(own)]
            for place, content in _files(tables[key], figures[key]).items():
                _write(content, yours / place)
    page = yours / "index.html"
    if claims:
        _write(markdown.render(claims).encode(), yours / "claims.md")
    text = html.render(results, list(tables.values()), figures, yours, claims)
    _write(text.encode(), page)
    shown = {key: agreements.get(key, "none of your runs is finished") for key in names}
    if len(shown) == 1 and agreements.keys() & shown.keys():
        print(markdown.render(tables[names[0]]))
    print(f"Your runs: {Agreement.of_all([agreements[k] for k in names if k in agreements])}.")
    for key, agreement in shown.items():
        print(f"{tables[key].entry.label}: {agreement}")
    print(f"your numbers next to the published ones: {page}")


def _copy(figure: str, results: Path, yours: Path) -> None:
    for path in (results / "figures").glob(f"{figure}.*"):
        _write(path.read_bytes(), yours / "figures" / path.name)


def _files(table: Table, figures: Sequence[Plot]) -> dict[str, bytes]:
    files = {
        f"tables/{table.key}.md": markdown.render(table).encode(),
        f"tables/{table.key}.tex": latex.render(table).encode(),
    }
    for plot in figures:
        for kind, content in render(plot).items():
            files[f"figures/{plot.name}.{kind}"] = content
    return files


def _write(content: bytes, path: Path) -> None:
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)


def _fail(message: str, status: int) -> int:
    print(f"report: {message}", file=sys.stderr)
    return status


def known_tables(results: Path, *archives: Archive) -> list[str]:
    """Return the keys of all tables with a number of the paper or a record, in print order."""
    rows = {row for archive in archives for row, _ in archive.records}
    found = {number.table for number in read_paper()}
    found |= {split_row(row)[1].partition("/")[0] for row in rows}
    return [key for key in CATALOGUE if key in found] + sorted(found - set(CATALOGUE))


def load(results: Path, key: str, published: Archive, own: Archive | None = None) -> Table:
    """Return a table of ``published`` records, or of your ``own``, with the paper's numbers.

    Raises:
        UserError: an input cannot be used; the message names the file.
    """
    entry, archive = entry_of(key), own or published
    if key in STUDIES:
        return table_of_studies(entry, archive.of(StudyRecord, key))
    return table_of_runs(
        entry,
        [number for number in read_paper() if number.table == key],
        archive.of(Record, key, *(f"{scale}/{key}" for scale in SCALES)),
        archive.of(StudyRecord, "throughput"),
        read_published(results / "published_curves.csv"),
        read_baselines(published, own),
    )
