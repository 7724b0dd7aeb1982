"""How far a piece of the paper has been reproduced, read from its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from phantomgrad_suite.report.catalogue import Artifact
from phantomgrad_suite.report.prose import Document, Heading
from phantomgrad_suite.report.sheet import Sheet, is_paper

MADE, PARTLY, MISSING = "made", "partly", "not run yet"
FAILED = "DOES NOT HOLD"  # as the pages of the studies print it
_NOT_MEASURED = ("params", "parameters", "n")

Row = Mapping[str, str]


@dataclass(frozen=True)
class Status:
    """The state, and in words what there is."""

    state: str
    detail: str = ""


def status_of(artifact: Artifact, documents: Sequence[Document], drawn: bool) -> Status:
    """Return the status of an artifact.

    A row of the paper is made once a full run of ours stands in it.

    Args:
        artifact: what the paper shows.
        documents: its tables.
        drawn: whether there is a figure of it.
    """
    if not documents:
        return Status(MADE if drawn else MISSING)
    sheets = [p for d in documents for p in d.results if isinstance(p, Sheet)]
    if sheets:
        return _of_rows(artifact, sheets)
    headings = [p.text for d in documents for p in d.parts if isinstance(p, Heading)]
    missing = [p for p in artifact.parts if not any(h.startswith(p) for h in headings)]
    if missing:
        return Status(PARTLY, f"not {', '.join(missing)}")
    failed = [c for d in documents for c in _cells(d) if c == FAILED]
    verb = "check does" if len(failed) == 1 else "checks do"
    return Status(MADE, f"{len(failed)} {verb} not hold" if failed else "")


def _of_rows(artifact: Artifact, sheets: Sequence[Sheet]) -> Status:
    ours = [(row, _is_ours(row, sheet)) for sheet in sheets for row in sheet.records]
    if not any(made for _, made in ours):
        return Status(MISSING, "the paper's numbers only")
    printed = [(row, made) for row, made in ours if _has_number(row.get("Paper", ""))] or ours
    full = [row for row, made in printed if made and "reduced" not in " ".join(row.values())]
    names = {_plain(value) for row in full for value in row.values()}
    if artifact.data and _plain(artifact.data) not in names:
        return Status(PARTLY, f"not on {artifact.data} yet")
    if len(full) < len(printed):
        return Status(PARTLY, f"{len(full)} of {len(printed)} rows in full")
    return Status(MADE)


def _cells(document: Document) -> list[str]:
    sheets = [part for part in document.parts if isinstance(part, Sheet)]
    return [cell.text for sheet in sheets for row in sheet.rows for cell in row]


def _is_ours(row: Row, sheet: Sheet) -> bool:
    """Return whether a column of results that is not the paper's holds a number."""
    numeric = [
        h.text for h, is_number in zip(sheet.headings, sheet.numeric, strict=True) if is_number
    ]
    ours = [h for h in numeric if not is_paper(h) and not _says_nothing(h.casefold())]
    return any(_has_number(row[heading]) for heading in ours)


def _says_nothing(heading: str) -> bool:
    """Return whether a column tells nothing of runs: steps on synthetic batches train nothing."""
    return heading in _NOT_MEASURED or heading.startswith("speed, step")


def _has_number(text: str) -> bool:
    return any(letter.isdigit() for letter in text)


def _plain(name: str) -> str:
    return "".join(letter for letter in name.casefold() if letter.isalnum())
