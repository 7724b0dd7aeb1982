"""``scripts/evaluate.py``: the test values of a finished run, computed again from its weights."""

import hashlib
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from lightning import Trainer
from omegaconf import DictConfig, OmegaConf

from phantomgrad_suite.data import DataModule
from phantomgrad_suite.jobs.build import build, build_task
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.records import read_record
from phantomgrad_suite.train import prepare

# Less than one of 50,000 test images, and more than what processors differ by in a loss.
_TOLERANCE = 1e-5
_ALONE = {
    **{"devices": 1, "num_nodes": 1, "strategy": "auto", "sync_batchnorm": False},
    **{"logger": False, "enable_checkpointing": False},
}


def evaluate(folder: Path, overrides: Sequence[str] = ()) -> bool:
    """Print recorded and recomputed test values of a run; return whether they agree.

    The configuration is the record's; ``overrides`` may change ``runtime``. A :class:`UserError`
    says what is missing, or is not as it was.
    """
    record = read_record(folder / "record.json")
    if not record.weights:
        raise UserError(
            f"{folder} has no weights: runtime.keep_weights was false, or an older version wrote "
            "its record"
        )
    for override in overrides:
        if not override.startswith("runtime.") or "=" not in override:
            raise UserError(f"an evaluation can change runtime.<setting>=<value>, got {override!r}")
    config: Any = OmegaConf.merge(record.config, OmegaConf.from_dotlist(list(overrides)))
    data, metric, agree = prepare(config), record.result.metric, True
    for name, kept in record.weights.items():
        recorded = getattr(record.result, name)
        found = _metrics(config, data, folder, kept)[f"test/{metric}"]
        same = math.isclose(found, recorded, rel_tol=_TOLERANCE)
        difference = "" if same else ": they differ"
        print(
            f"{name} {metric} (epoch {kept['epoch']}, {kept['file']}): recorded {recorded:.8g}, "
            f"recomputed {found:.8g}{difference}"
        )
        agree = agree and same
    return agree


def _metrics(
    config: DictConfig, data: DataModule, folder: Path, kept: Mapping[str, Any]
) -> dict[str, float]:
    """Return the metrics of the model with the weights of a file."""
    path = folder / kept["file"]
    content = path.read_bytes() if path.is_file() else b""
    if hashlib.sha256(content).hexdigest() != kept["sha256"]:
        raise UserError(f"{path} is missing, or not the file whose checksum the record has")
    task = build_task(config, data)
    task.evaluated.load_state_dict(torch.load(io.BytesIO(content), "cpu", weights_only=True))
    if kept["step"] >= config.task.get("pretraining_steps", 0):
        task.pretrain(0, 1)  # else the trainer below would be in pretraining, at step 0
    trainer: Trainer = build(config.trainer, "trainer", **{**config.runtime.trainer, **_ALONE})
    found = trainer.validate(task, data, verbose=False)
    return {name: value for part in found for name, value in part.items()}
