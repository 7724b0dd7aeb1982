"""Loading: from a folder of results and the key of a table to the table."""

from __future__ import annotations

from pathlib import Path

from phantomgrad_suite.report.catalogue import CATALOGUE, entry_of
from phantomgrad_suite.report.experiments.results import table_of_runs
from phantomgrad_suite.report.inputs import read_paper, read_published, read_runs, read_studies
from phantomgrad_suite.report.studies import STUDIES, table_of_studies
from phantomgrad_suite.report.table import Table
from phantomgrad_suite.runs.errors import UserError


def known_tables(results: Path) -> list[str]:
    """Return the keys of all tables with a number of the paper or a record, in print order."""
    records = results / "records"
    folders = [path for path in records.iterdir() if path.is_dir()] if records.is_dir() else []
    found = {number.table for number in read_paper(results / "paper.csv")}
    found |= {folder.name for folder in folders if any(folder.rglob("*.json"))}
    return [key for key in CATALOGUE if key in found] + sorted(found - set(CATALOGUE))


def load(results: Path, key: str) -> Table:
    """Return a table made from the records and the paper's numbers.

    Args:
        results: the folder with ``records``, ``paper.csv`` and ``published_curves.csv``.
        key: the first part of the names of its rows, for example ``table4``.

    Raises:
        UserError: an input cannot be used; the message names the file.
    """
    entry, records = entry_of(key), results / "records"
    study = key if key in STUDIES else "throughput"
    studies = read_studies(records, study)
    try:
        if key in STUDIES:
            return table_of_studies(entry, studies)
        numbers = [n for n in read_paper(results / "paper.csv") if n.table == key]
        published = read_published(results / "published_curves.csv")
        return table_of_runs(entry, numbers, read_runs(records, key), studies, published)
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise UserError(
            f"a record below {records / study} lacks a value that its table needs ({error!r}), as "
            "one of another version may: delete it and run `python scripts/study.py` again"
        ) from error
