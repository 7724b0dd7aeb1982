"""Embedded data, checksums of data files, and a cache of tensors that are slow to derive."""

import atexit
import hashlib
import io
import logging
import tarfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from filelock import FileLock
from torch import Tensor

from phantomgrad_suite.runs.files import write_file

log = logging.getLogger(__name__)


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


def embedded_file(name: str) -> Path:
    """Return the path of a file that comes with the package (see ``embedded/README.md``)."""
    return Path(str(files("phantomgrad_suite.data"))) / "embedded" / name


@cache
def embedded_folder(name: str) -> Path:
    """Return an embedded archive unpacked, in a temporary folder that ends with this process."""
    folder = TemporaryDirectory(prefix="phantomgrad-")
    atexit.register(folder.cleanup)
    with tarfile.open(embedded_file(f"{name}.tar.xz")) as archive:
        archive.extractall(folder.name, filter="data")
    return Path(folder.name)


def cached(path: Path, sources: Iterable[Path], make: Callable[[], list[Tensor]]) -> list[Tensor]:
    """Return the tensors in the file ``path``, or make them from ``sources`` and write that file.

    A file is used only if it is undamaged and the sources have the same sizes and times. Processes
    that want the same file wait until the first of them has made it.
    """
    stats = [("/".join(source.parts[-2:]), source.stat()) for source in sorted(sources)]
    lines = [f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in stats]
    origin = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    with _locked(path):
        kept = _read(path, origin)
        return kept if kept is not None else _made(path, origin, make())


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of ``path``; a folder that cannot be written has none, and gets no file."""
    with ExitStack() as stack:
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(
                FileLock(path.with_name(f".{path.name}.lock"), fallback_to_soft=False)
            )
        yield


def _read(path: Path, origin: str) -> list[Tensor] | None:
    try:
        kept = torch.load(path, weights_only=True)
        if kept["source"] == origin and kept["sha256"] == digest(kept["tensors"]):
            return kept["tensors"]  # type: ignore[no-any-return]
    except Exception:  # a damaged file can raise almost anything
        pass
    if path.exists():
        log.warning("%s is damaged or made from other data: making it again", path)
    return None


def _made(path: Path, origin: str, tensors: list[Tensor]) -> list[Tensor]:
    """Write ``tensors`` and return them."""
    content = io.BytesIO()
    # In memory: on a full disk torch raises no OSError.
    torch.save({"source": origin, "sha256": digest(tensors), "tensors": tensors}, content)
    try:
        write_file(path, content.getbuffer())
    except OSError as error:
        log.warning("%s could not be written (%s): every run will make it again", path, error)
    return tensors


def digest(tensors: Iterable[Tensor]) -> str:
    """Return the SHA-256 of the contents of tensors on the CPU, in hexadecimal."""
    content = hashlib.sha256()
    for tensor in tensors:
        content.update(tensor.contiguous().numpy().data)
    return content.hexdigest()
