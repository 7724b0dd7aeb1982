"""Trained models: finished runs with the weights that they kept, and released ones.

A released model is ``results/weights/<row>/<instance>.safetensors``, the weights after the last
epoch of a run, with the run's record next to it as ``.json``. The header of the weights holds the
sizes that the model took from the data, so that it can be built without them.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from lightning import Trainer
from omegaconf import DictConfig, OmegaConf
from safetensors import safe_open
from torch import Tensor

from phantomgrad_suite.data import DataModule
from phantomgrad_suite.data.sources import sha256
from phantomgrad_suite.jobs.build import build, build_task
from phantomgrad_suite.runs.configs import RESULTS
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.folder import RunFolder
from phantomgrad_suite.runs.lengths import in_steps
from phantomgrad_suite.runs.records import Record, read_record

_ALONE = {
    "devices": 1,
    "num_nodes": 1,
    "strategy": "auto",
    "sync_batchnorm": False,
    "logger": False,
    "enable_checkpointing": False,
}


def read_run(folder: Path) -> Record:
    """Return the record of a finished run that has weights, or raise :class:`UserError`."""
    path = RunFolder(folder).record
    if not path.is_file():
        raise UserError(f"{folder} holds no finished run: train it first, or name another folder")
    record = read_record(path)
    if "file" not in record.weights.get("last", {}):
        why = "it diverged" if record.diverged else "runtime.keep_weights was false"
        raise UserError(f"{folder} has no weights: {why}")
    return record


def read_weights(folder: Path, kept: Mapping[str, Any]) -> dict[str, Any]:
    """Return the weights in a file of a run's folder, described by an entry of its record."""
    path = folder / kept["file"]
    if not path.is_file() or sha256(path) != kept["sha256"]:
        raise UserError(
            f"{path} is missing, or not the file whose checksum the record has: restore it, or "
            f"move {folder} away and train the run again"
        )
    weights: dict[str, Any] = torch.load(path, "cpu", weights_only=True)
    return weights


def configuration(record: Record, data: Path | None = None) -> DictConfig:
    """Return the configuration of a record, with the folder in which its data set is, if given.

    What it names is built, as what a file of ``configs/`` names: read records that you trust.
    """
    config = OmegaConf.create(record.config)
    runtime: Any = config.runtime
    if data is not None and (root := runtime.dataset.get("root")) is not None:
        usual = Path(runtime.paths.data)
        is_usual = Path(root).is_relative_to(usual)
        part = Path(root).relative_to(usual) if is_usual else Path(root).name
        runtime.dataset.root = str(data / part)
    return config


class Released(NamedTuple):
    """A released model: its record, and the content of its file."""

    record: Record
    weights: dict[str, Tensor]
    sizes: dict[str, float]  # the arguments of its constructor that depend on the data


def released(results: Path = RESULTS) -> list[str]:
    """Return the names of all released models."""
    folder = results / "weights"
    files = sorted(folder.rglob("*.safetensors"))
    return [file.relative_to(folder).with_suffix("").as_posix() for file in files]


def read_released(name: str, results: Path = RESULTS) -> Released:
    """Return a released model, named by row and instance, or by a row with a single instance.

    Raises:
        UserError: there is no such model, or its file is not that of ``SHA256SUMS``.
    """
    names = released(results)
    if not names:
        raise UserError(f"{results / 'weights'} holds no models: load_model needs a checkout")
    found = [known for known in names if name in (known, known.rpartition("/")[0])]
    if len(found) != 1:
        none = f"there is neither a released model nor a finished run {name!r}"
        what = f"{name} is several models" if found else none
        raise UserError(f"{what}: choose from {', '.join(found or names)}")
    (name,) = found
    path = weights_file(name, results)
    checksums = (results / "weights" / "SHA256SUMS").read_text().splitlines()
    if f"{sha256(path)}  {name}.safetensors" not in checksums:
        raise UserError(
            f"{path} is not the file whose checksum weights/SHA256SUMS has: restore it from the "
            "repository"
        )
    with safe_open(path, "pt") as file:
        sizes = json.loads(file.metadata()["sizes"])
        weights = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    return Released(read_record(path.with_suffix(".json")), weights, sizes)


def weights_file(name: str, results: Path) -> Path:
    """Return the file of a released model; its record is next to it, as ``.json``."""
    return results / "weights" / f"{name}.safetensors"


def evaluate(
    config: DictConfig, data: DataModule, weights: Mapping[str, Any], step: int, steps: int
) -> dict[str, float]:
    """Return the metrics of the model with the weights after ``step`` of ``steps`` of a run."""
    task = build_task(config, data)
    task.evaluated.load_state_dict(weights)
    if step >= in_steps(config.task.get("pretraining_steps", 0), steps):
        task.pretrain(0, 1)  # else the trainer below would be in pretraining, at step 0
    runtime = {**config.runtime.trainer, **_ALONE}
    if runtime["accelerator"] != "cpu":
        runtime["accelerator"] = "auto"  # a run on a GPU may be verified without one
    trainer: Trainer = build(config.trainer, "trainer", **runtime)
    found = trainer.validate(task, data, verbose=False)
    return {name: value for part in found for name, value in part.items()}
