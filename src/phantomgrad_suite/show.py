"""What a checkpoint or a record says of itself."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

from phantomgrad_suite.checkpoint.provenance import KEY
from phantomgrad_suite.checkpoint.storage import damage
from phantomgrad_suite.runs.errors import UserError


def describe(path: Path, *, config: bool = False) -> str:
    """Return what made a file, where its run stood, and what it holds, as lines of text.

    Args:
        path: of a checkpoint or a record, or a run folder (its record, or its last checkpoint).
        config: whether the whole configuration follows, as YAML.

    Raises:
        UserError: there is no such file, it is damaged, or it says nothing of itself.
    """
    path = _file(path)
    content = _read(path)
    facts = content.get(KEY) if path.suffix != ".json" else content
    if not facts or not facts.keys() >= {"row", "instance", "config", "environment"}:
        raise UserError(f"{path} does not say what made it: it is something else, or too old")
    told = dict(_stands(content) if path.suffix != ".json" else _found(content))
    lines = [f"{name:<10} {value}" for name, value in {**dict(_made(facts)), **told}.items()]
    if config:
        lines += ["", OmegaConf.to_yaml(OmegaConf.create(facts["config"])).rstrip()]
    return "\n".join(lines)


def _file(path: Path) -> Path:
    candidates = [path / "record.json", path / "checkpoints" / "last.ckpt"]
    if path.is_dir():
        path = next((file for file in candidates if file.exists()), candidates[-1])
    if not path.is_file():
        raise UserError(f"there is no file {path}: name a checkpoint, a record or a run folder")
    return path


def _read(path: Path) -> dict[str, Any]:
    if path.suffix != ".json" and (wrong := damage(path)):
        raise UserError(f"{path} cannot be read ({wrong})")
    try:
        if path.suffix == ".json":
            content = json.loads(path.read_text())
        else:  # mmap: the tensors, which are most of it, are not read
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:
        raise UserError(f"{path} cannot be read ({type(error).__name__}: {error})") from error
    return content if isinstance(content, dict) else {}


def _made(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    environment = facts["environment"]
    versions = {"python": environment["python"], **environment["versions"]}
    yield "run", f"{facts['row']} {facts['instance']}"
    if "command" in facts:  # records have none
        yield "command", facts["command"]
    yield "hash", facts["config_hash"]
    yield "revision", environment["git"] or "not in a git checkout"
    yield "versions", ", ".join(f"{name} {version}" for name, version in versions.items())
    yield "machine", ", ".join(filter(None, [environment["processor"], environment["accelerator"]]))


def _stands(checkpoint: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    epochs = checkpoint[KEY]["config"]["trainer"].get("max_epochs")
    place = f"in epoch {checkpoint['epoch'] + 1} of {epochs}"
    yield "stands", f"{place}, after step {checkpoint['global_step']}"
    yield "holds", ", ".join(_parts(checkpoint))
    history = checkpoint.get("callbacks", {}).get("History", {}).get("curves", {})
    for name, curve in history.items():
        if curve and name.startswith("test/"):
            yield name, f"last {curve[-1]:.6g} after {len(curve)} epochs"


def _parts(checkpoint: Mapping[str, Any]) -> Iterator[str]:
    weights = checkpoint["state_dict"].values()
    yield f"state of the model ({sum(w.numel() for w in weights):,} numbers)"
    callbacks = checkpoint.get("callbacks", {})
    for name, there in {
        "optimizer": checkpoint.get("optimizer_states"),
        "schedule": checkpoint.get("lr_schedulers"),
        "generators": callbacks.get("RandomState"),
        "place in the data": callbacks.get("LoaderPlace"),
        "means of the epoch": checkpoint.get("means"),
        "memory of the streams": checkpoint.get("memory"),
    }.items():
        if there:
            yield name


def _found(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    result = record.get("result")
    yield "finished", f"{record['finished']}, protocol {record.get('protocol', 'full')}"
    if result:
        best, last = f"best {result['best']:.6g}", f"last {result['last']:.6g}"
        yield result["metric"], f"{best} (epoch {result['best_epoch']}), {last}"
