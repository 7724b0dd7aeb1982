"""The parts of a run, built from its configuration."""

from __future__ import annotations

from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import get_class, instantiate
from omegaconf import DictConfig

from phantomgrad_suite.data import DataModule
from phantomgrad_suite.data.base import Synthetic
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.tasks import Task


def build(node: Any, name: str, **more: Any) -> Any:
    """Instantiate a configured object; a wrong key or value is reported in one line.

    Raises:
        UserError: the object refuses its arguments.
    """
    try:
        return instantiate(node, **more)
    except InstantiationException as error:
        cause = error.__cause__
        if isinstance(cause, UserError):
            raise cause from error
        raise UserError(f"{name} cannot be built: {cause or error}") from error


def build_data(config: DictConfig) -> DataModule:
    """Return the data module: ``dataset``, with the folders and workers of ``runtime.dataset``."""
    data: DataModule = build(config.dataset, "dataset", **config.runtime.dataset)
    return data


def build_task(config: DictConfig, data: DataModule | Synthetic) -> Task:
    """Return the task of a configuration, with its model in the sizes of ``data``.

    Raises:
        UserError: a part refuses its arguments.
    """
    model = build(config.model, "model", **data.sizes())
    task: Task = build(
        config.task,
        "task",
        model=model,
        evaluation_sets=data.evaluation_sets,
        **data.targets(),
    )
    try:
        task.configure_optimizers()  # Lightning repeats it; a wrong key is reported early
    except (TypeError, ValueError) as error:
        raise UserError(f"optimizer or schedule cannot be built: {error}") from error
    return task


def synthetic_data(dataset: DictConfig, **changes: Any) -> Synthetic:
    """Return random batches in the shapes of a configured data set, without reading its files.

    Args:
        dataset: the configuration of the data module.
        changes: settings that replace those of ``dataset``.

    Raises:
        UserError: the data set has no synthetic batches.
        ValueError: a setting is out of range.
    """
    module: type[DataModule] = get_class(dataset._target_)
    settings = {str(k): v for k, v in dataset.items() if not str(k).startswith("_")}
    return module.synthetic(**{**settings, **changes})
