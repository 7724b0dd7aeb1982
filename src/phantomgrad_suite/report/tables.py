"""The tables of a folder of results: which there are, and each of them made from its records."""

from dataclasses import replace

from phantomgrad_suite.report.baselines import read_baselines
from phantomgrad_suite.report.catalogue import catalogue, entry_of
from phantomgrad_suite.report.document import Table
from phantomgrad_suite.report.inputs import read_paper
from phantomgrad_suite.report.results import table_of_runs
from phantomgrad_suite.report.studies import STUDIES, table_of_studies
from phantomgrad_suite.runs.archive import Archive
from phantomgrad_suite.runs.identity import SCALES, table_of
from phantomgrad_suite.runs.records import Record, StudyRecord


def known_tables(*archives: Archive) -> list[str]:
    """Return the keys of all tables with a number of the paper or a record, in print order."""
    rows = {row for archive in archives for row, _ in archive.records}
    found = {number.table for number in read_paper()}
    found |= {*map(table_of, rows)}
    return [key for key in catalogue() if key in found] + sorted(found - catalogue().keys())


def load(key: str, published: Archive, own: Archive | None = None) -> Table:
    """Return a table of ``published`` records, or of your ``own``, with the paper's numbers.

    Raises:
        UserError: an input cannot be used; the message names the file.
    """
    entry, archive = entry_of(key), own or published
    places = key, *(f"{scale}/{key}" for scale in SCALES)
    if key in STUDIES:
        return table_of_studies(entry, archive.of(StudyRecord, key))
    table = table_of_runs(
        entry,
        [number for number in read_paper() if number.table == key],
        archive.of(Record, *places),
        archive.of(StudyRecord, "throughput"),
        read_baselines(published, own),
    )
    studies = table_of_studies(entry, archive.of(StudyRecord, *places))  # of the user
    return replace(table, sections=table.sections + studies.sections, studies=studies.studies)
