"""The command: read everything, draw everything, then write everything."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd

from phantomgrad_suite.report.catalogue import catalogue
from phantomgrad_suite.report.claims.claims_table import judge, table_of_claims
from phantomgrad_suite.report.document import Table, latex, markdown
from phantomgrad_suite.report.extensions import load_extensions
from phantomgrad_suite.report.figures import plots_of
from phantomgrad_suite.report.figures.forest import draw
from phantomgrad_suite.report.figures.style import FORMATS, Plot, render
from phantomgrad_suite.report.page import page
from phantomgrad_suite.report.tables import known_tables, load
from phantomgrad_suite.report.yours import agreement, compared, with_your_claims, with_yours
from phantomgrad_suite.runs.archive import Archive
from phantomgrad_suite.runs.configs import IS_CHECKOUT, RESULTS
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.files import write_file

USAGE = """usage: python scripts/report.py [TABLE ...] [results=DIR] [yours=DIR] [formats=svg,pdf]

Makes DIR/tables/<table>.{md,tex} and DIR/figures/<table>*.svg from DIR/records and the
files of rows, for all tables if none is named, and DIR/claims.md from DIR/claims.yaml.
DIR/index.html shows all of them. With formats=svg,pdf the figures are PDF files, too.
With yours=DIR the folder of results is only read: the tables of DIR/records, next to the
published ones, are made in that DIR, and how far they agree is printed."""
_OPTIONS = ("results=", "yours=", "formats=")


def main(arguments: Sequence[str]) -> int:
    """Make the tables named in ``arguments``, or all of them.

    Returns:
        0; 1 if an input cannot be used (then nothing is written); 2 for a wrong argument.
    """
    if {"-h", "--help", "help"} & set(arguments):
        print(USAGE)
        return 0
    load_extensions()
    options = dict(a.split("=", 1) for a in arguments if a.startswith(_OPTIONS))
    names = [a for a in arguments if not a.startswith(_OPTIONS)]
    results, formats = Path(options.get("results", RESULTS)), options.get("formats", "svg")
    try:
        if not (IS_CHECKOUT or {"results", "yours"} & options.keys()):  # it would write into itself
            raise UserError("yours=runs/results shows your results next to the published ones")
        if unknown := {*formats.split(",")} - FORMATS.keys():
            raise UserError(f"formats must be svg, pdf or both, got {', '.join(sorted(unknown))}")
        yours = Path(options["yours"]) if "yours" in options else None
        report = Report(results, yours, formats.split(","))
        for name in names:
            if name not in report.known:
                known = ", ".join(report.known)
                return _fail(f"there is no table {name}: choose from {known}", 2)
        report.make(names or report.known)
    except UserError as error:
        return _fail(str(error), 1)
    except OSError as error:
        return _fail(f"{error.filename or results}: {error.strerror or error}", 1)
    return 0


def _fail(message: str, status: int) -> int:
    print(f"report: {message}", file=sys.stderr)
    return status


@dataclass
class Report:
    """All tables, figures and claims of a folder of results, next to those of ``yours``."""

    results: Path
    yours: Path | None = None
    formats: Sequence[str] = ("svg",)
    compared: dict[str, pd.DataFrame] = field(default_factory=dict)  # your tables, by key

    def __post_init__(self) -> None:
        self.published = Archive(self.results / "records")
        self.own = Archive(self.yours / "records") if self.yours else None
        if self.own and not self.own.records:
            raise UserError(
                f"{self.yours} has no records: yours must be a folder of your results, usually "
                "runs/results, where finished runs of unchanged rows leave their records (compare "
                "RUN_FOLDER RUN_FOLDER shows changed ones)"
            )
        self.known = known_tables(*filter(None, [self.published, self.own]))
        keys = dict.fromkeys([*catalogue(), *self.known])
        self.tables = {key: load(key, self.published) for key in keys}
        self.figures = {key: plots_of(table) for key, table in self.tables.items()}
        for key in self.known if self.own else ():
            self._put_yours_next_to(key)

    def _put_yours_next_to(self, key: str) -> None:
        yours = load(key, self.published, self.own)
        if yours.studies or len(yours.runs):
            plots = [
                replace(plot, caption=f"Your runs. {plot.caption}") for plot in plots_of(yours)
            ]
            self.compared[key] = compared(self.tables[key], yours)
            self.tables[key] = with_yours(self.tables[key], yours, agreement(self.compared[key]))
            self.figures[key] = plots

    def make(self, names: Sequence[str]) -> None:
        """Make everything, then write the tables of these ``names``, or all of yours."""
        written = list(self.compared if self.own else dict.fromkeys(names))
        files, claims = self._claims()
        for key in written:
            files |= self._files(self.tables[key], self.figures[key])
        shown = [self.compared[key] for key in names if key in self.compared]
        agreed = agreement(pd.concat(shown), details=False) if shown else "none is finished."
        first = f"Your runs: {agreed}" if self.own else ""
        text = page(self.results, [*self.tables.values()], self.figures, claims, first)
        files["index.html"] = text.encode()
        if len(names) == 1 and names[0] in written:
            print(markdown(self.tables[names[0]]))
        folder = self.yours or self.results
        for place, content in files.items():
            write_file(folder / place, content)
        if not self.own:
            print("\n".join(f"wrote {folder / place}" for place in files))
            return
        print(first)
        for key in names:
            found = self.compared.get(key)
            text = "none of your runs is finished" if found is None else agreement(found)
            print(f"{self.tables[key].entry.label}: {text}")
        print(f"your numbers next to the published ones: {folder / 'index.html'}")

    def _claims(self) -> tuple[dict[str, bytes], Table | None]:
        """Return the files of the claims, which have the published figure, and their table."""
        judged, files = judge(self.results, self.published), dict[str, bytes]()
        claims = table_of_claims(judged, self.yours) if judged else None
        if self.own:
            repeated = judge(self.results, self.published, self.own)
            if claims and repeated:
                claims = with_your_claims(claims, table_of_claims(repeated, self.yours))
            figures = (self.results / "figures").glob("*.*")
            files = {f"figures/{path.name}": path.read_bytes() for path in figures}
        elif judged:
            drawn = render(lambda: draw(judged.of_paper, judged.sentence), self.formats)
            files = {f"figures/claims.{kind}": content for kind, content in drawn.items()}
        return files | ({"claims.md": markdown(claims).encode()} if claims else {}), claims

    def _files(self, table: Table, figures: Sequence[Plot]) -> dict[str, bytes]:
        files = {
            f"tables/{table.key}.md": markdown(table).encode(),
            f"tables/{table.key}.tex": latex(table).encode(),
        }
        for plot in figures:
            for kind, content in render(plot.draw, self.formats).items():
                files[f"figures/{plot.name}.{kind}"] = content
        return files
