"""The parts of a run, built from its configuration."""

import re
from collections.abc import Callable
from typing import Any

import torch
from hydra.errors import InstantiationException
from hydra.utils import get_class, instantiate
from omegaconf import DictConfig, OmegaConf

from phantomgrad_suite.data import DataModule
from phantomgrad_suite.data.base import Synthetic
from phantomgrad_suite.jobs.types import check_types
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.tasks import Task

_OWN_SETTINGS = {  # of runtime.trainer: without influence on the result of a run
    *("accelerator", "benchmark", "default_root_dir", "detect_anomaly", "deterministic"),
    *("enable_model_summary", "enable_progress_bar", "log_every_n_steps", "num_sanity_val_steps"),
    "profiler",
}
_OWN_DATA_SETTINGS = {"root", "test_batch_size", "workers"}  # of runtime.dataset


def check_settings(config: DictConfig) -> None:
    """Raise :class:`UserError` for values that neither Lightning nor a constructor refuses."""
    gpus = config.runtime.trainer.accelerator != "cpu" and torch.cuda.is_available()
    rules: dict[str, tuple[Callable[[Any], bool], str]] = {
        "nonfinite": (lambda value: value in ("stop", None), "stop or null"),
        "trainer.max_epochs": (lambda v: type(v) is int and v > 0, "a positive integer"),
        "trainer.accumulate_grad_batches": (lambda v: v is None or v > 0, "positive or null"),
        # Lightning would repeat an earlier value: results are of the weights at the end of epochs.
        "trainer.check_val_every_n_epoch": (
            lambda value: value in (None, 1),
            "1 (a result needs the value of each epoch)",
        ),
        "trainer.val_check_interval": (  # an integer counts batches
            lambda value: value is None or (type(value) is float and value == 1),
            "1.0 (a result needs the value at an epoch's end)",
        ),
        "trainer.gradient_clip_val": (lambda value: (value or 0) >= 0, "at least 0"),
        "trainer.sync_batchnorm": (lambda value: gpus or not value, "false without GPUs"),
        "runtime.checkpoint": (
            lambda value: value is not None,
            "set (runtime.checkpoint.every_minutes=null saves at the end of epochs only)",
        ),
        "runtime.keep_weights": (lambda value: type(value) is bool, "true or false"),
    }
    check_types(config.trainer, "trainer")
    for key, (holds, rule) in rules.items():
        if not holds(value := OmegaConf.select(config, key)):
            raise UserError(f"{key} must be {rule}, got {value!r}")
    decisive = [f"trainer.{key}" for key in config.runtime.trainer if key not in _OWN_SETTINGS]
    own = _OWN_DATA_SETTINGS - set(config.dataset)  # texts have a decisive test_batch_size
    decisive += [f"dataset.{key}" for key in config.runtime.dataset if key not in own]
    if decisive:
        raise UserError(
            f"runtime.{decisive[0]} may change the result, so it must identify the run: "
            f"set {decisive[0]} (with a plus if it is not set yet)"
        )


def build(node: Any, name: str, **more: Any) -> Any:
    """Instantiate a configured object; a :class:`UserError` reports a wrong key or value."""
    check_types(node, name)
    try:
        return instantiate(node, **more)
    except InstantiationException as error:
        cause = error.__cause__
        if isinstance(cause, UserError):
            raise cause from error
        unknown = re.search(r"unexpected keyword argument '(\w+)'", str(cause))
        drop = f"; if the row sets it, ~<group>.{unknown[1]} drops it" if unknown else ""
        raise UserError(f"{name} cannot be built: {cause or error}{drop}") from error


def build_data(config: DictConfig) -> DataModule:
    """Return the data module: ``dataset``, with ``runtime.dataset``."""
    return build(config.dataset, "dataset", **config.runtime.dataset)  # type: ignore[no-any-return]


def check_search(config: DictConfig, data: DataModule, task: Task) -> None:
    """Raise :class:`UserError` if ``runtime.tune`` cannot choose by validation data."""
    search, metrics = config.runtime.tune, ("validation/loss", f"validation/{task.metric}")
    if search.objective not in metrics:
        raise UserError(
            f"runtime.tune.objective must be {' or '.join(metrics)}, got {search.objective!r}"
        )
    if search.direction not in ("minimize", "maximize"):
        raise UserError(
            f"runtime.tune.direction must be minimize or maximize, got {search.direction!r}"
        )
    if "validation" not in data.evaluation_sets:
        raise UserError(
            f"tune needs a validation part, and {config.dataset.get('name')} has none as it is "
            "set: dataset.split=stratified (TU graphs), +dataset.validation=5000 (images) or "
            "+dataset.validation_share=0.1 (texts) makes one"
        )


def build_task(config: DictConfig, data: DataModule | Synthetic) -> Task:
    """Return the task of a configuration, with its model in the sizes of ``data``."""
    sizes, sets = data.sizes(), data.evaluation_sets
    targets = {name: int(sizes[name]) for name in ("classes", "labels") if name in sizes}
    model = build(config.model, "model", **sizes)
    task: Task = build(config.task, "task", model=model, evaluation_sets=sets, **targets)
    try:
        task.configure_optimizers()  # Lightning repeats it; a wrong key is reported early
    except (TypeError, ValueError) as error:
        by_step = "; it needs task.schedule_by=step" if "argument: 'steps'" in str(error) else ""
        raise UserError(f"optimizer or schedule cannot be built: {error}{by_step}") from error
    return task


def synthetic_data(dataset: DictConfig, **changes: Any) -> Synthetic:
    """Return random batches in the shapes of a data set, without its files; or raise.

    ``changes`` replace settings of ``dataset``.
    """
    module: type[DataModule] = get_class(dataset._target_)
    settings = {str(k): v for k, v in dataset.items() if not str(k).startswith("_")}
    return module.synthetic(**{**settings, **changes})
