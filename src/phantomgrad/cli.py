"""Help for what is typed: unknown rows and tables answered with the known ones."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


def explain_unknown_row(arguments: list[str]) -> None:
    """Exit with one line, and the nearest names, if a row or a table does not exist."""
    for group in ("experiment", "table"):
        known = names(group)
        for argument in arguments:
            key, _, value = argument.partition("=")
            if key != group or "," in value or "(" in value or value in ("", "null", *known):
                continue
            near = difflib.get_close_matches(value, known, n=3, cutoff=0.3)
            sys.exit(
                f"there is no {group} {value!r}; the nearest are {', '.join(near) or 'none'} "
                f"(all of them: configs/{group}/)"
            )


def names(group: str) -> list[str]:
    """Return the names of the files of a configuration group, nested ones by their path."""
    folder = CONFIGS / group
    return sorted(str(p.relative_to(folder).with_suffix("")) for p in folder.rglob("*.yaml"))
