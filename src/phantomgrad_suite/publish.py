"""``scripts/publish.py``: your records become those that the repository publishes."""

from pathlib import Path

from phantomgrad_suite.runs.archive import Archive
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.records import made_from_changes


def publish(yours: Path, results: Path) -> list[str]:
    """Copy the records of ``yours`` that differ to ``results``; return a line for each.

    Records of runs from a checkout with changes are left out: nobody could repeat them.
    """
    if not (yours / "records").is_dir():
        raise UserError(f"{yours / 'records'} is not a folder: no row has been finished there")
    own, published, lines = Archive(yours / "records"), Archive(results / "records"), []
    known = published.records
    for (row, instance), record in own.records.items():
        if known.get((row, instance)) == record:
            continue
        if made_from_changes(record):
            lines.append(f"left out, made from a changed checkout: {row} {instance}")
            continue
        published.add(record)
        lines.append(f"published: {row} {instance}")
    return lines
