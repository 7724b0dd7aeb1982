"""Settings of a run that neither Lightning nor a constructor refuses, though they cannot work.

Every argument of Lightning's ``Trainer`` is in one of three places: :data:`TRAINER`, what a row may
set; :data:`RUNTIME_TRAINER`, what has no influence on a result; or :data:`WITHOUT_EFFECT`.
"""

import re
from collections.abc import Callable
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from phantomgrad_suite.jobs.types import annotations, check_types
from phantomgrad_suite.runs.errors import SettingError

TRAINER = {
    *("devices", "num_nodes", "strategy", "precision", "sync_batchnorm", "use_distributed_sampler"),
    *("max_epochs", "min_epochs", "max_steps", "min_steps", "max_time", "overfit_batches"),
    *("limit_train_batches", "limit_val_batches", "val_check_interval", "check_val_every_n_epoch"),
    *("accumulate_grad_batches", "gradient_clip_val", "gradient_clip_algorithm"),
    *("inference_mode", "reload_dataloaders_every_n_epochs"),
}
RUNTIME_TRAINER = {
    *("accelerator", "benchmark", "detect_anomaly", "deterministic", "enable_model_summary"),
    *("enable_progress_bar", "log_every_n_steps", "num_sanity_val_steps", "profiler"),
}
WITHOUT_EFFECT = {
    "logger": "choose logger=...",
    "callbacks": "add +runtime.callbacks.<name> or +measure.<name>",
    "plugins": "a run has its own",
    "default_root_dir": "set runtime.paths.runs",
    "enable_checkpointing": "set runtime.checkpoint",
    "barebones": "a run needs its logger and its checkpoint",
    "fast_dev_run": "set trainer.max_epochs and +trainer.limit_train_batches",
    "limit_test_batches": "set +trainer.limit_val_batches: test data are validation data to it",
    **dict.fromkeys(("limit_predict_batches", "model_registry", "enable_autolog_hparams"), ""),
}
_OWN_DATA_SETTINGS = {"root", "test_batch_size", "workers"}  # of runtime.dataset

Rule = tuple[Callable[[Any], bool], str]


def _rules(config: DictConfig) -> dict[str, Rule]:
    """Return for each key whether a value can work, and what it must be."""
    epochs = config.trainer.max_epochs
    accelerator, cuda = config.runtime.trainer.accelerator, torch.cuda.is_available()
    gpus = accelerator != "cpu" and cuda
    accelerated = gpus or accelerator not in ("cpu", "auto")
    batches: Rule = (lambda v: v is None or v > 0, "positive: a run trains and evaluates")
    return {
        "nonfinite": (lambda value: value in ("stop", None), "stop or null"),
        "trainer.max_epochs": (lambda v: type(v) is int and v > 0, "a positive integer"),
        "trainer.accumulate_grad_batches": (lambda v: v is None or v > 0, "positive or null"),
        "trainer.limit_train_batches": batches,
        "trainer.limit_val_batches": batches,
        "trainer.check_val_every_n_epoch": (
            lambda value: value is None or (value > 0 and epochs % value == 0),
            f"a divisor of trainer.max_epochs={epochs}, whose last epoch is evaluated",
        ),
        "trainer.val_check_interval": (  # an integer counts batches
            lambda value: value is None or (type(value) is float and value == 1),
            "1.0 (a result needs the value at an epoch's end)",
        ),
        "trainer.gradient_clip_val": (lambda value: (value or 0) >= 0, "at least 0"),
        "trainer.gradient_clip_algorithm": (
            lambda value: value is None or config.trainer.get("gradient_clip_val") is not None,
            "left out without trainer.gradient_clip_val",
        ),
        "trainer.sync_batchnorm": (lambda value: gpus or not value, "false without GPUs"),
        "trainer.precision": (  # Lightning would take bf16 instead
            lambda value: accelerated or str(value) not in ("16", "16-mixed"),
            "bf16-mixed or 32-true on a CPU",
        ),
        "trainer.strategy": (
            lambda value: not re.search("spawn|fork|notebook", str(value)),
            "one whose processes are commands of their own, as ddp",
        ),
        "runtime.trainer.profiler": (  # what Lightning logs is not shown
            lambda value: not isinstance(value, str),
            "an object that writes files, as {_target_: lightning.pytorch.profilers."
            "SimpleProfiler, dirpath: ., filename: profile}",
        ),
        "runtime.checkpoint": (
            lambda value: value is not None,
            "set (runtime.checkpoint.every_minutes=null saves at the end of epochs only)",
        ),
        "runtime.logger": (lambda value: value is not None, "set: choose logger=..."),
        "runtime.keep_weights": (lambda value: type(value) is bool, "true or false"),
    }


def check_settings(config: DictConfig) -> None:
    """Raise :class:`SettingError` for a setting that cannot work or has no effect."""
    for part, settings in ("trainer", config.trainer), ("runtime.trainer", config.runtime.trainer):
        for key in WITHOUT_EFFECT.keys() & settings.keys():
            instead = WITHOUT_EFFECT[key] or "leave it out"
            raise SettingError(f"{part}.{key} has no effect on a run: {instead}")
    check_types(config.trainer, "trainer")
    hints = annotations(config.trainer.get("_target_", ""))
    check_types(config.runtime.trainer, "runtime.trainer", hints)
    for key, (holds, rule) in _rules(config).items():
        if not holds(value := OmegaConf.select(config, key)):
            raise SettingError(f"{key} must be {rule}, got {value!r}")
    own_settings = _OWN_DATA_SETTINGS - set(config.dataset)  # texts have a decisive test_batch_size
    decisive = [f"trainer.{key}" for key in config.runtime.trainer if key not in RUNTIME_TRAINER]
    decisive += [f"dataset.{key}" for key in config.runtime.dataset if key not in own_settings]
    if decisive:
        raise SettingError(
            f"runtime.{decisive[0]} may change the result, so it must identify the run: "
            f"set {decisive[0]} (with a plus if it is not set yet)"
        )
