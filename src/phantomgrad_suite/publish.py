"""``scripts/publish.py``: your records become those that the repository publishes."""

import shutil
from pathlib import Path

from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.records import made_from_changes, read_any


def publish(yours: Path, results: Path) -> list[str]:
    """Copy the records of ``yours`` that differ to ``results``; return a line for each.

    Records of runs from a checkout with changes are left out: nobody could repeat them.
    """
    if not (yours / "records").is_dir():
        raise UserError(f"{yours / 'records'} is not a folder: no row has been finished there")
    lines = []
    for path in sorted((yours / "records").rglob("*.json")):
        place = path.relative_to(yours)
        target = results / place
        if target.exists() and target.read_bytes() == path.read_bytes():
            continue
        if made_from_changes(read_any(path)):
            lines.append(f"left out, made from a changed checkout: {place}")
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        lines.append(f"published: {place}")
    return lines
