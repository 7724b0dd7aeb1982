"""``scripts/evaluate.py``: the test values of a finished run, computed again from its weights."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning import Trainer
from omegaconf import DictConfig

from phantomgrad_suite.data import DataModule
from phantomgrad_suite.jobs.build import build, build_task
from phantomgrad_suite.jobs.trained import configuration, read_run, read_weights
from phantomgrad_suite.runs.lengths import in_steps
from phantomgrad_suite.runs.records import Record
from phantomgrad_suite.train import prepare

# Less than one of 50,000 test images, and more than what processors differ by in a loss.
_TOLERANCE = 1e-5
_ALONE = {
    "devices": 1,
    "num_nodes": 1,
    "strategy": "auto",
    "sync_batchnorm": False,
    "logger": False,
    "enable_checkpointing": False,
}


def evaluate(folder: Path, overrides: Sequence[str] = ()) -> bool:
    """Print recorded and recomputed test values of a run; return whether they agree.

    The configuration is the record's; ``overrides`` may change ``runtime``. A :class:`UserError`
    says what is missing, or is not as it was.
    """
    record = read_run(folder)
    config = configuration(record, overrides)
    data, metric, agree = prepare(config), record.result.metric, True
    compare_data(record, data)
    for name, kept in record.weights.items():
        weights = read_weights(folder, kept)
        found = metrics(config, data, weights, kept["step"], record.weights["last"]["step"])
        title = f"{name} {metric} (epoch {kept['epoch']}, {kept['file']})"
        agree &= compare(title, getattr(record.result, name), found[f"test/{metric}"])
    return agree


def compare_data(record: Record, data: DataModule) -> None:
    """Print a line if the data are not those that a run was made on."""
    then, now = record.data.get("fingerprint"), data.facts().get("fingerprint")
    if now != then:
        print(f"the data differ: the run has the fingerprint {then}, these have {now}", flush=True)


def compare(title: str, recorded: float, found: float) -> bool:
    """Print a recorded and a recomputed value; return whether they agree."""
    same = math.isclose(found, recorded, rel_tol=_TOLERANCE)
    values = f"recorded {recorded:.8g}, recomputed {found:.8g}"
    print(f"{title}: {values}{'' if same else ': they differ'}", flush=True)
    return same


def metrics(
    config: DictConfig, data: DataModule, weights: Mapping[str, Any], step: int, steps: int
) -> dict[str, float]:
    """Return the metrics of the model with the weights after ``step`` of ``steps`` of a run."""
    task = build_task(config, data)
    task.evaluated.load_state_dict(weights)
    if step >= in_steps(config.task.get("pretraining_steps", 0), steps):
        task.pretrain(0, 1)  # else the trainer below would be in pretraining, at step 0
    trainer: Trainer = build(config.trainer, "trainer", **{**config.runtime.trainer, **_ALONE})
    found = trainer.validate(task, data, verbose=False)
    return {name: value for part in found for name, value in part.items()}
