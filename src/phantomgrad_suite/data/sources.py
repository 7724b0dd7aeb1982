"""The files of data sets: their checksums and archives."""

from __future__ import annotations

import hashlib
import lzma
import tarfile
import zlib
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

from phantomgrad_suite.runs.errors import UserError


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fingerprint(paths: Iterable[Path]) -> str:
    """Return one SHA-256 of the names and contents of files."""
    total = hashlib.sha256()
    for path in paths:
        total.update(path.name.encode() + bytes.fromhex(sha256(path)))
    return f"sha256:{total.hexdigest()}"


def known_checksums(folder: str = "") -> dict[str, str]:
    """Return the known SHA-256 of each file in ``folder``, a path below ``runtime.paths.data``."""
    lines = files("phantomgrad_suite.data").joinpath("SHA256SUMS").read_text().splitlines()
    known = {path: digest for digest, path in map(str.split, lines)}
    prefix = f"{folder}/" if folder else ""
    return {p.removeprefix(prefix): digest for p, digest in known.items() if p.startswith(prefix)}


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a tar archive; a truncated or damaged one raises ``UserError``."""
    # Python has filters since 3.11.4; Debian 12 has 3.11.2.
    safely: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    try:
        with tarfile.open(archive) as content:
            content.extractall(folder, **safely)
    except (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError) as error:
        raise UserError(
            f"{archive} is truncated or damaged ({type(error).__name__}: {error})"
        ) from error
