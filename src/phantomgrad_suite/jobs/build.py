"""The parts of a run, built from its configuration."""

from collections.abc import Callable
from typing import Any

import torch
from hydra.errors import InstantiationException
from hydra.utils import get_class, instantiate
from omegaconf import DictConfig, OmegaConf

from phantomgrad_suite.data import DataModule
from phantomgrad_suite.data.base import Synthetic
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.tasks import Task


def check_settings(config: DictConfig) -> None:
    """Raise :class:`UserError` for values that would fail late with a long traceback."""
    gpus = config.runtime.trainer.accelerator != "cpu" and torch.cuda.is_available()
    positive = (lambda value: type(value) is int and value > 0), "a positive integer"
    numbers = (int, float, type(None))
    rules: dict[str, tuple[Callable[[Any], bool], str]] = {
        "nonfinite": (lambda value: value in ("stop", None), "stop or null"),
        "trainer.max_epochs": positive,
        "trainer.sync_batchnorm": (lambda value: gpus or not value, "false without GPUs"),
        "runtime.keep_weights": (lambda value: type(value) is bool, "true or false"),
        "runtime.checkpoint.every_n_epochs": positive,
        "runtime.checkpoint.every_minutes": (
            lambda value: isinstance(value, numbers) and (value or 0) >= 0,
            "a number (0: after every step) or null",
        ),
    }
    for key, (holds, rule) in rules.items():
        if not holds(value := OmegaConf.select(config, key)):
            raise UserError(f"{key} must be {rule}, got {value!r}")


def build(node: Any, name: str, **more: Any) -> Any:
    """Instantiate a configured object; a :class:`UserError` reports a wrong key or value."""
    try:
        return instantiate(node, **more)
    except InstantiationException as error:
        cause = error.__cause__
        if isinstance(cause, UserError):
            raise cause from error
        raise UserError(f"{name} cannot be built: {cause or error}") from error


def build_data(config: DictConfig) -> DataModule:
    """Return the data module: ``dataset``, with the folders and workers of ``runtime.dataset``."""
    return build(config.dataset, "dataset", **config.runtime.dataset)  # type: ignore[no-any-return]


def build_task(config: DictConfig, data: DataModule | Synthetic) -> Task:
    """Return the task of a configuration, with its model in the sizes of ``data``."""
    model = build(config.model, "model", **data.sizes())
    sets = data.evaluation_sets
    task: Task = build(config.task, "task", model=model, evaluation_sets=sets, **data.targets())
    try:
        task.configure_optimizers()  # Lightning repeats it; a wrong key is reported early
    except (TypeError, ValueError) as error:
        raise UserError(f"optimizer or schedule cannot be built: {error}") from error
    return task


def synthetic_data(dataset: DictConfig, **changes: Any) -> Synthetic:
    """Return random batches in the shapes of a data set, without its files; or raise.

    ``changes`` replace settings of ``dataset``.
    """
    module: type[DataModule] = get_class(dataset._target_)
    settings = {str(k): v for k, v in dataset.items() if not str(k).startswith("_")}
    return module.synthetic(**{**settings, **changes})
