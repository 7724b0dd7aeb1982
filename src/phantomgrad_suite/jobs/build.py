"""The parts of a run, built from its configuration."""

import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import lightning
import torch
from hydra.errors import InstantiationException
from hydra.utils import get_class, instantiate
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from torch import nn

from phantomgrad_suite.data import DataModule
from phantomgrad_suite.data.base import Synthetic
from phantomgrad_suite.jobs.environment import choose_threads, set_float32_precision
from phantomgrad_suite.jobs.settings import check_settings
from phantomgrad_suite.jobs.types import check_types
from phantomgrad_suite.runs.errors import MissingDataError, SettingError, UserError
from phantomgrad_suite.tasks import Task

# Lightning's warnings about itself that are of no use to the user of a run.
_KNOWN_WARNINGS = (
    ".*LeafSpec.*",
    ".*does not have many workers.*",
    ".*smaller than the logging interval.*",
    ".*Checkpoint directory .* exists and is not empty.*",
    ".*The `srun` command is available.*",
    ".*The .grad attribute of a Tensor that is not a leaf.*",  # read by torch.compile
    ".*use `self.log\\('seconds/.*sync_dist.*",  # the clock of the first process is meant
)


def build(node: Any, name: str, kind: type = object, /, **more: Any) -> Any:
    """Instantiate a configured object of a class; a :class:`SettingError` says why it cannot be."""
    check_types(node, name)
    with refused(f"{name} cannot be built"):
        built = instantiate(node, **more)
    if not isinstance(built, kind):
        raise SettingError(f"{name} must be a {kind.__name__}, got {type(built).__name__}")
    return built


@contextmanager
def refused(what: str) -> Iterator[None]:
    """Turn any error of a constructor into a :class:`SettingError`: ``what``, and the reason."""
    try:
        yield
    except Exception as error:
        cause = error.__cause__ if isinstance(error, InstantiationException) else error
        cause = cause or error
        if isinstance(cause, MissingDataError | OSError):
            raise cause from error
        if isinstance(cause, UserError):
            raise SettingError(str(cause)) from error
        raise SettingError(f"{what}: {_reason(cause)}{_how_to_drop(what, error, cause)}") from error


def _how_to_drop(what: str, error: Exception, cause: BaseException) -> str:
    """Return the override that drops an argument which a constructor does not take."""
    unknown = re.search(r"unexpected keyword argument '(\w+)'", str(cause))
    if not unknown:
        return ""
    built = re.search(r"full_key: ([\w.]+)", str(error))
    node = built[1] if built else what.split(" ")[0]
    node = node.replace("gradient.solver", "adjoint")  # what models refer to
    node = re.sub(r"^model\.(?=solver|gradient|adjoint)", "", node)
    return f"; if the row sets it, '~{node}.{unknown[1]}' drops it"


def _reason(error: BaseException) -> str:
    """Return a message in one line, with the kind of error where it alone says little."""
    is_short = isinstance(error, LookupError | ArithmeticError | AttributeError) or not str(error)
    lines = str(error).split("\n")
    kept = lines[:1] if isinstance(error, OmegaConfBaseException) else lines
    kind = [type(error).__name__] if is_short else []
    return ": ".join([*kind, " ".join(" ".join(kept).split())])


def prepare(config: DictConfig) -> DataModule:
    """Check the settings, set threads, precision, seed and logging, and return the data."""
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    for message in _KNOWN_WARNINGS:
        warnings.filterwarnings("ignore", message=message)
    check_settings(config)
    choose_threads(config.runtime.get("threads"), "runtime.threads")
    set_float32_precision(config.matmul_precision)
    lightning.seed_everything(config.seed + (config.dataset.get("fold") or 0), verbose=False)
    return build_data(config)


def build_data(config: DictConfig) -> DataModule:
    """Return the data module: ``dataset``, with ``runtime.dataset``."""
    return build(config.dataset, "dataset", DataModule, **config.runtime.dataset)  # type: ignore[no-any-return]


def check_search(config: DictConfig, data: DataModule, task: Task) -> None:
    """Raise :class:`SettingError` if ``runtime.tune`` cannot choose by validation data."""
    search, metrics = config.runtime.tune, ("validation/loss", f"validation/{task.metric}")
    if search.objective not in metrics:
        raise SettingError(
            f"runtime.tune.objective must be {' or '.join(metrics)}, got {search.objective!r}"
        )
    if search.direction not in ("minimize", "maximize"):
        raise SettingError(
            f"runtime.tune.direction must be minimize or maximize, got {search.direction!r}"
        )
    if "validation" not in data.evaluation_sets:
        raise SettingError(
            f"tune needs a validation part, and {config.dataset.get('name')} has none as it is "
            "set: dataset.split=stratified (TU graphs) or ++dataset.validation=5000 (images) makes "
            "one"
        )


def build_task(config: DictConfig, data: DataModule | Synthetic) -> Task:
    """Return the task of a configuration, with its model in the sizes of ``data``."""
    sizes, sets = data.sizes(), data.evaluation_sets
    targets = {name: int(sizes[name]) for name in ("classes", "labels") if name in sizes}
    model = build(config.model, "model", nn.Module, **sizes)
    task: Task = build(config.task, "task", Task, model=model, evaluation_sets=sets, **targets)
    _try_recipe(config, task)
    return task


def _try_recipe(config: DictConfig, task: Task) -> None:
    """Take a step with one weight: what cannot work would fail in the middle of the run."""
    weight = nn.Parameter(torch.zeros(1, 1))  # some optimizers take matrices only
    weight.grad = torch.ones_like(weight)
    optimized = f"optimizer{_arguments(config.task.optimizer)} does not work"
    with refused(optimized):
        task.optimizer_of(task.model.parameters())
        optimizer = task.optimizer_of([weight])
    scheduled = f"schedule{_arguments(config.task.get('schedule'))} does not work"
    with refused(scheduled):
        schedule = task.schedule_of(optimizer, steps=1)
    with refused(optimized):
        optimizer.step()
    with refused(scheduled):
        if schedule is not None:
            schedule.step()


def _arguments(node: Any) -> str:
    settings = [f"{k}={v}" for k, v in (node or {}).items() if not str(k).startswith("_")]
    return f" with {', '.join(settings)}" if settings else ""


def synthetic_data(dataset: DictConfig, **changes: Any) -> Synthetic:
    """Return random batches in the shapes of a data set, without its files; or raise.

    ``changes`` replace settings of ``dataset``.
    """
    module: type[DataModule] = get_class(dataset._target_)
    settings = {str(k): v for k, v in dataset.items() if not str(k).startswith("_")}
    return module.synthetic(**{**settings, **changes})
