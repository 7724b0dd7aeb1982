"""Describe a checkpoint or a record: what made it, and how far its run got."""

import json
from pathlib import Path
from typing import Any

import yaml

from phantomgrad_suite.runs.errors import UserError

_PROVENANCE = "provenance"  # where a checkpoint has what a record has
_SHOWN = (
    *("row", "instance", "label", "protocol", "changes", "command", "config_hash", "environment"),
    *("started", "attempts", "finished", "result", "checks", "weights"),
)


def describe(path: Path, *, config: bool = False) -> str:
    """Return what a checkpoint, a record, or a run folder states about its run, as YAML.

    ``config`` appends the whole configuration.
    """
    if path.is_dir():
        record = path / "record.json"
        path = record if record.exists() else path / "checkpoints" / "last.ckpt"
    if not path.is_file():
        raise UserError(f"there is no file {path}: name a checkpoint, a record or a run folder")
    if path.suffix == ".jsonl":
        raise UserError(f"{path} has the records of all runs of a row: name the folder of a run")
    content = _read(path)
    facts = content.get(_PROVENANCE, content)
    if "config_hash" not in facts:
        raise UserError(f"{path} is not a checkpoint or record of this project")
    shown = {key: facts[key] for key in _SHOWN if facts.get(key)}
    if "epoch" in content:
        epochs = facts["config"]["trainer"]["max_epochs"]
        position = f"in epoch {content['epoch'] + 1} of {epochs}"
        shown["progress"] = f"{position}, after step {content['global_step']}"
    if config:
        shown["config"] = facts["config"]
    return str(yaml.safe_dump(shown, sort_keys=False, allow_unicode=True, width=10_000)).rstrip()


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.suffix == ".json":
            return dict(json.loads(path.read_text()))
        import torch  # takes seconds, which a record should not wait for

        # mmap: the tensors, which are most of it, are not read.
        return dict(torch.load(path, map_location="cpu", weights_only=True, mmap=True))
    except Exception as error:  # a damaged file can raise almost any
        raise UserError(f"{path} cannot be read ({type(error).__name__}: {error})") from error
