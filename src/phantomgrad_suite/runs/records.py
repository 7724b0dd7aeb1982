"""Records of finished runs and studies: what tables and figures are made from.

One run or study, one JSON file, ``<records>/<row>/<instance>.json``. The row is the path of the
experiment or study file (``table4/cox2_implicit``, ``figure1/tanh``), the instance its seed and
fold (``seed42-fold3``). Standard library only.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from phantomgrad_suite.runs.record_files import RecordError, read_json, write_json, write_record
from phantomgrad_suite.runs.run_record import Record, Result, parse_record, read_record
from phantomgrad_suite.runs.study_record import KIND, Check, StudyRecord, parse_study, read_study

__all__ = [
    "Check",
    "Record",
    "RecordError",
    "Result",
    "StudyRecord",
    "read_any",
    "read_record",
    "read_records",
    "read_study",
    "write_json",
    "write_record",
]


def read_any(path: Path) -> Record | StudyRecord:
    """Read the record of a run or of a study.

    Raises:
        RecordError: the file cannot be read, is no JSON, or is no record of this schema.
    """
    content = read_json(path)
    if isinstance(content, dict) and content.get("kind") == KIND:
        return parse_study(content, path)
    return parse_record(content, path)


def read_records(folder: Path) -> Iterator[Record | StudyRecord]:
    """Read every record below ``folder``, in the order of their paths."""
    for path in sorted(folder.rglob("*.json")):
        yield read_any(path)
