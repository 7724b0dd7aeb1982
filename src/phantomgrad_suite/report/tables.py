"""The tables of a folder of results: which there are, and each of them made from its records."""

from dataclasses import replace
from typing import TypeVar

from phantomgrad_suite.report.baselines import read_baselines
from phantomgrad_suite.report.catalogue import catalogue, entry_of
from phantomgrad_suite.report.document import Table
from phantomgrad_suite.report.inputs import read_paper
from phantomgrad_suite.report.results import table_of_runs
from phantomgrad_suite.report.studies import STUDIES, table_of_studies
from phantomgrad_suite.runs.archive import Archive
from phantomgrad_suite.runs.identity import split_row
from phantomgrad_suite.runs.records import Record, StudyRecord

_R = TypeVar("_R", Record, StudyRecord)


def known_tables(*archives: Archive) -> list[str]:
    """Return the keys of all tables with a number of the paper or a record, in print order."""
    rows = {row for archive in archives for row, _ in archive.records}
    found = {number.table for number in read_paper()}
    found |= {*map(_table, rows)}
    return [key for key in catalogue() if key in found] + sorted(found - catalogue().keys())


def load(key: str, published: Archive, own: Archive | None = None) -> Table:
    """Return a table of ``published`` records, or of your ``own``, with the paper's numbers.

    Raises:
        UserError: an input cannot be used; the message names the file.
    """
    entry, archive = entry_of(key), own or published
    if key in STUDIES:
        return table_of_studies(entry, archive.of(StudyRecord, key))
    table = table_of_runs(
        entry,
        [number for number in read_paper() if number.table == key],
        _below(key, archive, Record),
        archive.of(StudyRecord, "throughput"),
        read_baselines(published, own),
    )
    studies = table_of_studies(entry, _below(key, archive, StudyRecord))  # of the user
    return replace(table, sections=table.sections + studies.sections, studies=studies.studies)


def _below(key: str, archive: Archive, kind: type[_R]) -> list[_R]:
    """Return the records of a kind whose rows are in a table, those of the full protocol first."""
    found = [r for (row, _), r in archive.records.items() if _table(row) == key]
    return sorted((r for r in found if isinstance(r, kind)), key=lambda r: split_row(r.row)[0])


def _table(row: str) -> str:
    return split_row(row)[1].partition("/")[0]
