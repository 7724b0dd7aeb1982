"""Describe a checkpoint or a record: what made it, how far its run got, what it holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

from phantomgrad_suite.checkpoint.state import GENERATORS, LOADER, PROVENANCE
from phantomgrad_suite.checkpoint.storage import damage
from phantomgrad_suite.runs.errors import UserError

_PARTS = {
    "optimizer": "optimizer_states",
    "schedule": "lr_schedulers",
    "random state": GENERATORS,
    "place in the data": LOADER,
    "means of the epoch": "means",
    "memory of the streams": "memory",
}


def describe(path: Path, *, config: bool = False) -> str:
    """Return the description of a file as lines of text.

    Args:
        path: of a checkpoint or a record, or a run folder (its record, or its last checkpoint).
        config: whether to append the whole configuration as YAML.

    Raises:
        UserError: there is no such file, it is damaged, or it does not say what made it.
    """
    if path.is_dir():
        record = path / "record.json"
        path = record if record.exists() else path / "checkpoints" / "last.ckpt"
    if not path.is_file():
        raise UserError(f"there is no file {path}: name a checkpoint, a record or a run folder")
    is_record = path.suffix == ".json"
    content = _read(path, is_record)
    facts = content if is_record else content.get(PROVENANCE, {})
    if not facts.keys() >= {"row", "instance", "config", "environment"}:
        raise UserError(f"{path} does not say what made it: it is something else, or too old")
    parts = {**_origin(facts), **(_result(content) if is_record else _progress(content))}
    lines = [f"{name:<10} {value}" for name, value in parts.items() if value]
    if config:
        lines += ["", OmegaConf.to_yaml(OmegaConf.create(facts["config"])).rstrip()]
    return "\n".join(lines)


def _read(path: Path, is_record: bool) -> dict[str, Any]:
    if not is_record and (reason := damage(path)):
        raise UserError(f"{path} cannot be read ({reason})")
    try:
        if is_record:
            content = json.loads(path.read_text())
        else:  # mmap: the tensors, which are most of it, are not read
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:
        raise UserError(f"{path} cannot be read ({type(error).__name__}: {error})") from error
    return content if isinstance(content, dict) else {}


def _origin(facts: dict[str, Any]) -> dict[str, str]:
    environment = facts["environment"]
    versions = {"python": environment["python"], **environment["versions"]}
    machine = [environment["processor"], environment["accelerator"]]
    return {
        "run": f"{facts['row']} {facts['instance']}",
        "command": facts.get("command", ""),  # records have none
        "hash": facts["config_hash"],
        "revision": environment["git"] or "not in a git checkout",
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "machine": ", ".join(filter(None, machine)),
    }


def _progress(checkpoint: dict[str, Any]) -> dict[str, str]:
    epochs = checkpoint[PROVENANCE]["config"]["trainer"].get("max_epochs")
    step = checkpoint["global_step"]
    size = sum(weight.numel() for weight in checkpoint["state_dict"].values())
    parts = [name for name, key in _PARTS.items() if checkpoint.get(key)]
    found = {
        "progress": f"in epoch {checkpoint['epoch'] + 1} of {epochs}, after step {step}",
        "holds": ", ".join([f"state of the model ({size:,} numbers)", *parts]),
    }
    curves = checkpoint.get("callbacks", {}).get("History", {}).get("curves", {})
    for name, curve in curves.items():
        if curve and name.startswith("test/"):
            found[name] = f"last {curve[-1]:.6g} after {len(curve)} epochs"
    return found


def _result(record: dict[str, Any]) -> dict[str, str]:
    found = {"finished": f"{record['finished']}, protocol {record.get('protocol', 'full')}"}
    if result := record.get("result"):  # studies have none
        best, last = f"best {result['best']:.6g}", f"last {result['last']:.6g}"
        found[result["metric"]] = f"{best} (epoch {result['best_epoch']}), {last}"
    return found
