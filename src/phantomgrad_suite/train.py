"""One training run from a composed configuration: skip, resume or run; then write its record."""

from __future__ import annotations

import logging
import math
import signal
import time
import warnings
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import lightning
import torch
from hydra.core.hydra_config import HydraConfig
from lightning import Callback, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from omegaconf import DictConfig

from phantomgrad_suite.callbacks.cost import CostMeter, peak_memory
from phantomgrad_suite.callbacks.curves import History, Series
from phantomgrad_suite.checkpoint import (
    FiniteSteps,
    LoaderPlace,
    Provenance,
    RandomState,
    TimedCheckpoint,
    WholeCheckpointIO,
)
from phantomgrad_suite.checkpoint.signals import Stopped, StopSignals
from phantomgrad_suite.checkpoint.storage import newest_whole, previous_of
from phantomgrad_suite.checkpoint.workers import loss_said, none_left
from phantomgrad_suite.cluster.environment import slurm_environment
from phantomgrad_suite.data import DataModule
from phantomgrad_suite.jobs.arithmetic import set_float32_precision
from phantomgrad_suite.jobs.build import build, build_task
from phantomgrad_suite.jobs.command_line import command_line
from phantomgrad_suite.jobs.compilation import compile_solves
from phantomgrad_suite.jobs.environment import describe_environment, is_first_process, own_device
from phantomgrad_suite.jobs.job import as_dict, do
from phantomgrad_suite.jobs.settings import check_processes, check_settings
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.folder import Identity, RunFolder
from phantomgrad_suite.runs.records import Record
from phantomgrad_suite.tasks import Task

log = logging.getLogger(__name__)

# What Lightning says of itself at every run, and what is meant: prepared batches need no workers.
_KNOWN_WARNINGS = (
    ".*LeafSpec.*",
    ".*does not have many workers.*",
    ".*smaller than the logging interval.*",
    ".*Checkpoint directory .* exists and is not empty.*",
    ".*The `srun` command is available.*",  # a run on a login node, or one of `cluster=local`
    ".*use `self.log\\('seconds/.*sync_dist.*",  # the clock of the first process is meant
)


def run(config: DictConfig, row: str | None, overrides: list[str]) -> None:
    """Do the training run that ``config`` describes, unless it is done; see :func:`jobs.do`.

    Args:
        config: the composed configuration (``configs/train.yaml``).
        row: the experiment file it was composed with, ``None`` without one.
        overrides: what was overridden on the command line.

    Raises:
        UserError: something the user can put right; nothing has been overwritten.
        Stopped: a signal has asked for it; there is a checkpoint, or the record.
    """
    signals = StopSignals()

    def train(config: DictConfig, identity: Identity, folder: RunFolder) -> tuple[Record, str]:
        record = _Run(config, identity, folder, signals).record()
        return record, _headline(record)

    do(config, row, overrides, train)
    if signals.asked in (signal.SIGTERM, signal.SIGINT):
        # In the last epoch: the runs after this one are not begun. (SIGUSR2 is for jobs, of one.)
        log.warning("stopped by %s, at the end of the run", signal.Signals(signals.asked).name)
        raise Stopped(signals.asked)


@dataclass
class _Run:
    """The parts of one run, from configuration to record."""

    config: DictConfig
    identity: Identity
    folder: RunFolder
    signals: StopSignals

    def record(self) -> Record:
        clock = time.perf_counter()
        _quiet()
        task, data = self._build()
        history, cost, facts = History(), CostMeter(), self._facts()
        finite = FiniteSteps(self.config.nonfinite, self.folder.nonfinite, facts)
        provenance = Provenance(facts)
        kept = [history, cost, RandomState(), LoaderPlace(), finite, provenance]
        trainer = self._trainer(kept)
        check_processes(self.config, trainer.world_size)
        _say_device(trainer, asked=self.config.trainer.accelerator)
        with none_left(), loss_said() if trainer.world_size > 1 else nullcontext():
            trainer.fit(task, data, ckpt_path=self._checkpoint(task), weights_only=True)
        if history.epochs < trainer.max_epochs:  # type: ignore[operator]
            raise UserError(
                f"interrupted after {history.epochs} of {trainer.max_epochs} epochs: "
                "the same command resumes from the last checkpoint"
            )
        if is_first_process():
            previous_of(self.folder.last_checkpoint).unlink(missing_ok=True)  # it has served
        total = cost.earlier + time.perf_counter() - clock
        seconds = {"total": total, **cost.means()}
        return self._compose(task, data, history, seconds, provenance.attempts)

    def _build(self) -> tuple[Task, DataModule]:
        config = self.config
        check_settings(config)
        set_float32_precision(config.matmul_precision)
        lightning.seed_everything(config.seed + config.dataset.get("fold", 0), verbose=False)
        data = build(config.dataset, "dataset")
        task = build_task(config, data)
        compile_solves(task.model, config.compile, own_device(config.trainer.accelerator))
        return task, data

    def _trainer(self, kept: list[Callback]) -> Trainer:
        config = self.config
        timed = TimedCheckpoint(
            self.folder.last_checkpoint, config.checkpoint_every_minutes, self.signals
        )
        checkpoint = ModelCheckpoint(
            dirpath=self.folder.checkpoints,
            filename="last",
            every_n_epochs=config.checkpoint_every_n_epochs,
            save_on_train_epoch_end=True,
            enable_version_counter=False,
        )
        callbacks = [build(c, f"callbacks.{name}") for name, c in config.callbacks.items() if c]
        logger = build(config.logger, "logger")
        logger.log_hyperparams(as_dict(config))
        # The checkpoints come last: they must see what the others know.
        return build(  # type: ignore[no-any-return]
            config.trainer,
            "trainer",
            callbacks=[*kept, *callbacks, timed, checkpoint],
            logger=logger,
            plugins=[WholeCheckpointIO(), *slurm_environment()],
        )

    def _facts(self) -> dict[str, Any]:
        """Return what checkpoints say of the run they are of."""
        return {
            "command": command_line(HydraConfig.get()),
            "row": self.identity.row,
            "instance": self.identity.instance,
            "config": as_dict(self.config),
            "config_hash": self.identity.config_hash,
            "environment": {
                **describe_environment(own_device(self.config.trainer.accelerator)),
                **_compiled(self.config.compile),
            },
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
        }

    def _checkpoint(self, task: Task) -> str | None:
        path = newest_whole(self.folder.last_checkpoint, keeper=is_first_process())
        if path is None:
            return None
        try:
            saved = torch.load(path, map_location="cpu", weights_only=True)["state_dict"]
        except Exception as error:
            raise UserError(
                f"{path} is no readable checkpoint ({type(error).__name__}): "
                f"delete it to run {self.identity.row} {self.identity.instance} afresh"
            ) from error
        for name, tensor in task.state_dict().items():
            if name not in saved or saved[name].shape != tensor.shape:
                raise UserError(
                    f"{path} is of a model of another size ({name} differs): delete it to run "
                    f"{self.identity.row} {self.identity.instance} afresh"
                )
        log.info("resuming from %s", path)
        return str(path)

    def _compose(
        self,
        task: Task,
        data: DataModule,
        history: History,
        seconds: dict[str, float],
        attempts: list[dict[str, Any]],
    ) -> Record:
        facts = data.facts()
        cut = facts.get("reduced")
        changes = [*self.config.reduced, *([cut] if cut else []), *self.identity.changes]
        parameters = list(task.model.parameters())
        device = task.trainer.strategy.root_device  # the task itself has left it by now
        return Record(
            row=self.identity.row,
            instance=self.identity.instance,
            label={key: str(value) for key, value in self.config.label.items()},
            protocol="reduced" if changes else "full",
            changes=changes,
            result=history.result(task.metric, task.metric_mode),
            curves=_curves(history, task.trainer.callbacks),  # type: ignore[attr-defined]
            parameters={
                "total": sum(p.numel() for p in parameters),
                "trainable": sum(p.numel() for p in parameters if p.requires_grad),
            },
            data=facts,
            solver=_solver_means(history.curves),
            seconds=seconds,
            memory=peak_memory(device),
            environment={
                **describe_environment(device),
                **_compiled(self.config.compile),
                "processes": task.trainer.world_size,
                **({"earlier": attempts[:-1]} if len(attempts) > 1 else {}),
            },
            config=as_dict(self.config),
            config_hash=self.identity.config_hash,
            started=attempts[0]["started"],
            finished=datetime.now(UTC).isoformat(timespec="seconds"),
        )


def _say_device(trainer: Trainer, asked: str) -> None:
    """Say where a row runs that takes what there is: on a CPU it may take weeks."""
    device = trainer.strategy.root_device
    if asked != "auto" or not is_first_process():
        return
    if device.type == "cpu":
        log.warning("torch %s sees no GPU: training on the CPU", torch.__version__)
    else:
        log.info("training on %s", device)


def _quiet() -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    for message in _KNOWN_WARNINGS:
        warnings.filterwarnings("ignore", message=message)


def _curves(history: History, callbacks: list[Callback]) -> dict[str, list[float]]:
    """Return the metrics by epoch, and what the callbacks have kept beside them."""
    kept = {
        name: curve
        for name, curve in history.curves.items()
        if name.startswith(("train/", "test/", "validation/", "gradient/"))
    }
    for callback in callbacks:
        if isinstance(callback, Series):
            kept |= callback.curves()
    return {name: [_rounded(value) for value in curve] for name, curve in kept.items()}


def _rounded(value: float) -> float:
    whole = isinstance(value, int)  # a number of steps
    return value if whole or not math.isfinite(value) else float(f"{value:.6g}")


def _solver_means(curves: dict[str, list[float]]) -> dict[str, float]:
    """Return ``evaluations``, ``residual`` ... and ``adjoint_*``, averaged over the epochs."""
    means = {}
    for name, curve in curves.items():
        group, _, quantity = name.partition("/")
        if group in ("solver", "adjoint"):
            key = quantity if group == "solver" else f"adjoint_{quantity}"
            found = [
                value for value in curve if not math.isnan(value)
            ]  # pretraining solves nothing
            if found:
                means[key] = sum(found) / len(found)
    return means


def _compiled(mode: str | None) -> dict[str, str]:
    return {} if mode is None else {"compiled": f"solves, torch.compile mode {mode}"}


def _headline(record: Record) -> str:
    result, seconds = record.result, record.seconds
    selected = "" if result.selected is None else f", selected {result.selected:.4f}"
    return (
        f"{result.metric} best {result.best:.4f} (epoch {result.best_epoch}), "
        f"last {result.last:.4f}{selected}; {seconds['epoch']:.3f} s an epoch, "
        f"{seconds['total']:.0f} s in all"
    )
