"""Describe a checkpoint or a record: what made it, and how far its run got."""

import json
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

from phantomgrad_suite.checkpoint.state import PROVENANCE
from phantomgrad_suite.checkpoint.storage import damage
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.records import read_any


def describe(path: Path, *, config: bool = False) -> str:
    """Return the description of a checkpoint, a record, or a run folder as lines of text.

    ``config`` appends the whole configuration as YAML.
    """
    if path.is_dir():
        record = path / "record.json"
        path = record if record.exists() else path / "checkpoints" / "last.ckpt"
    if not path.is_file():
        raise UserError(f"there is no file {path}: name a checkpoint, a record or a run folder")
    content = _read(path)
    facts = content.get(PROVENANCE, content)
    if not facts.keys() >= {"row", "instance", "config", "config_hash", "environment"}:
        raise UserError(
            f"{path} has no provenance: it is not a checkpoint or record of this project, "
            "or an older version wrote it"
        )
    if content is facts:
        read_any(path)  # which checks the types
    environment = facts["environment"]
    versions = {"python": environment["python"], **environment["versions"]}
    label = facts["config"].get("label", {}) | facts.get("label", {})
    parts = {
        "run": f"{facts['row']} {facts['instance']}",
        "label": ", ".join(str(label[k]) for k in ("dataset", "model", "method") if k in label),
        "changes": ", ".join(facts.get("changes", [])),
        "command": facts.get("command"),  # records have none
        "hash": facts["config_hash"],
        "revision": environment["git"],
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "machine": ", ".join(filter(None, (environment["processor"], environment["accelerator"]))),
        "finished": facts.get("finished"),
    }
    if result := content.get("result"):
        parts[result["metric"]] = f"best {result['best']:.6g}, last {result['last']:.6g}"
    kept = content.get("weights", {}).values()
    parts["weights"] = ", ".join(f"{file['file']} (epoch {file['epoch']})" for file in kept)
    if "epoch" in content:
        epochs = facts["config"]["trainer"]["max_epochs"]
        position = f"in epoch {content['epoch'] + 1} of {epochs}"
        parts["progress"] = f"{position}, after step {content['global_step']}"
    lines = [f"{name:<10} {value}" for name, value in parts.items() if value]
    if config:
        lines += ["", OmegaConf.to_yaml(OmegaConf.create(facts["config"])).rstrip()]
    return "\n".join(lines)


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.suffix == ".json":
            content = json.loads(path.read_text())
        elif reason := damage(path):
            raise ValueError(reason)
        else:  # mmap: the tensors, which are most of it, are not read
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:
        raise UserError(f"{path} cannot be read ({type(error).__name__}: {error})") from error
    return content if isinstance(content, dict) else {}
