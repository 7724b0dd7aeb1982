"""An experiment: its configuration by name, and the parts that are built from one."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import InstantiationException
from hydra.utils import get_class, instantiate
from omegaconf import DictConfig, OmegaConf

from phantomgrad_suite.data import DataModule
from phantomgrad_suite.data.base import Synthetic
from phantomgrad_suite.jobs.command_line import CONFIGS, check_choice
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.tasks import Task


def compose_row(row: str) -> DictConfig:
    """Return the configuration of an experiment, as ``scripts/train.py`` composes it.

    This works inside a running Hydra application (a study, say) and outside of one.

    Raises:
        UserError: there is no such experiment.
    """
    check_choice(f"experiment={row}")
    with _hydra():
        return compose("train", [f"experiment={row}"])


def build(node: Any, name: str, **more: Any) -> Any:
    """Instantiate a configured object; a bad key or value becomes one line.

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


def build_task(config: DictConfig, data: DataModule | Synthetic) -> Task:
    """Return the task of a configuration, and in it the model, in the sizes of ``data``.

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
        task.configure_optimizers()  # Lightning does it again: a bad key must not wait so long
    except (TypeError, ValueError) as error:
        raise UserError(f"optimizer or schedule cannot be built: {error}") from error
    return task


def synthetic_data(dataset: DictConfig, **changes: Any) -> Synthetic:
    """Return noise in the shapes of a configured data set; none of its files is read.

    Args:
        dataset: the configuration of the data module.
        changes: settings that take the place of those in it.

    Raises:
        UserError: the data have no synthetic batches.
        ValueError: a setting is out of range.
    """
    settings = OmegaConf.to_container(dataset, resolve=True)
    assert isinstance(settings, Mapping)
    kind = get_class(dataset._target_)
    assert issubclass(kind, DataModule)
    plain = {str(k): v for k, v in settings.items() if not str(k).startswith("_")}
    return kind.synthetic(**{**plain, **changes})


def _hydra() -> AbstractContextManager[Any]:
    if GlobalHydra.instance().is_initialized():
        return nullcontext()
    return initialize_config_dir(str(CONFIGS), version_base="1.3")
