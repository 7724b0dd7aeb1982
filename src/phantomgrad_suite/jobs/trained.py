"""A finished run, and the weights that it kept."""

import hashlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.folder import RunFolder
from phantomgrad_suite.runs.records import Record, read_record


def read_run(folder: Path) -> Record:
    """Return the record of a finished run that has weights, or raise :class:`UserError`."""
    path = RunFolder(folder).record
    if not path.is_file():
        raise UserError(f"{folder} holds no finished run: train it first, or name another folder")
    record = read_record(path)
    if not record.weights:
        raise UserError(
            f"{folder} has no weights: runtime.keep_weights was false, or an older version wrote "
            "its record"
        )
    return record


def read_weights(folder: Path, kept: Mapping[str, Any]) -> dict[str, Any]:
    """Return the weights in a file of a run's folder, described by an entry of its record."""
    path = folder / kept["file"]
    content = path.read_bytes() if path.is_file() else b""
    if hashlib.sha256(content).hexdigest() != kept["sha256"]:
        raise UserError(f"{path} is missing, or not the file whose checksum the record has")
    weights: dict[str, Any] = torch.load(io.BytesIO(content), "cpu", weights_only=True)
    return weights


def configuration(record: Record, overrides: Sequence[str] = ()) -> DictConfig:
    """Return the configuration of a record; ``overrides`` may change ``runtime``."""
    for override in overrides:
        if not override.startswith("runtime.") or "=" not in override:
            raise UserError(f"an evaluation can change runtime.<setting>=<value>, got {override!r}")
    config: Any = OmegaConf.merge(record.config, OmegaConf.from_dotlist(list(overrides)))
    return config  # type: ignore[no-any-return]
