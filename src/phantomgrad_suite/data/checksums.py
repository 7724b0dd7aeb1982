"""Checksums of files, and those of the files that our results were made with."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from pathlib import Path


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def known_checksums() -> dict[str, str]:
    """Return the SHA-256 of every file whose content we know, by its path below ``paths.data``."""
    lines = files("phantomgrad_suite.data").joinpath("SHA256SUMS").read_text().splitlines()
    pairs = (line.split() for line in lines if line)
    return {path: digest for digest, path in pairs}
