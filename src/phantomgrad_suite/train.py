"""One training run from a composed configuration: skip, resume or execute it, write its record."""

from __future__ import annotations

import logging
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
from omegaconf import DictConfig

from phantomgrad_suite.callbacks.cost import CostMeter, peak_memory
from phantomgrad_suite.callbacks.curves import History
from phantomgrad_suite.checkpoint.finite import FiniteSteps
from phantomgrad_suite.checkpoint.last import LastCheckpoint, Stopped
from phantomgrad_suite.checkpoint.processes import explain_lost_worker, reap_workers
from phantomgrad_suite.checkpoint.state import RunState
from phantomgrad_suite.checkpoint.storage import WholeCheckpointIO, previous_of, resumable
from phantomgrad_suite.cluster.slurm import slurm_environment
from phantomgrad_suite.data import DataModule
from phantomgrad_suite.jobs.build import build, build_data, build_task
from phantomgrad_suite.jobs.command_line import command_line
from phantomgrad_suite.jobs.compose import as_dict
from phantomgrad_suite.jobs.environment import describe_environment, is_first_process, own_device
from phantomgrad_suite.jobs.job import run_job
from phantomgrad_suite.jobs.numerics import compile_solves, set_float32_precision
from phantomgrad_suite.jobs.settings import check_processes, check_settings
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.folder import RunFolder
from phantomgrad_suite.runs.identity import Identity
from phantomgrad_suite.runs.records import Record
from phantomgrad_suite.tasks import Task

log = logging.getLogger(__name__)

# Lightning's warnings about itself that are of no use to the user of a run.
_KNOWN_WARNINGS = (
    ".*LeafSpec.*",
    ".*does not have many workers.*",
    ".*smaller than the logging interval.*",
    ".*The `srun` command is available.*",
    ".*use `self.log\\('seconds/.*sync_dist.*",  # the clock of the first process is meant
)


def train(config: DictConfig) -> None:
    """Execute the training run that ``config`` describes, unless it is finished.

    Args:
        config: the composed configuration (``configs/train.yaml``).

    Raises:
        UserError: something the user can put right; nothing has been overwritten.
        Stopped: a signal has stopped the run; there is a checkpoint, or the record.
    """
    signum = 0

    def work(identity: Identity, folder: RunFolder) -> tuple[Record, str]:
        nonlocal signum
        record, signum = _Run(config, identity, folder).execute()
        return record, _headline(record)

    run_job(config, work)
    if signum in (signal.SIGTERM, signal.SIGINT):
        # In the last epoch: the next runs are not started. (SIGUSR2 is for jobs of one run.)
        log.warning("stopped by %s, at the end of the run", signal.Signals(signum).name)
        raise Stopped(signum)


@dataclass
class _Run:
    """One run, from configuration to record."""

    config: DictConfig
    identity: Identity
    folder: RunFolder

    def execute(self) -> tuple[Record, int]:
        """Return the record, and the signal received in the last epoch or 0."""
        clock = time.perf_counter()
        _silence_lightning()
        task, data = self._build()
        history, cost, state = History(), CostMeter(), RunState(self._facts())
        every = self.config.runtime.checkpoint
        checkpoint = LastCheckpoint(self.folder.last_checkpoint, **every)
        kept = [history, cost, state, *([FiniteSteps()] if self.config.nonfinite else [])]
        trainer = self._trainer([*kept, checkpoint])
        check_processes(self.config, trainer)
        with reap_workers(), explain_lost_worker() if trainer.world_size > 1 else nullcontext():
            path = resumable(self.folder.last_checkpoint, task, keeper=is_first_process())
            trainer.fit(task, data, ckpt_path=path, weights_only=True)
        if history.epochs < trainer.max_epochs:  # type: ignore[operator]
            raise UserError(
                f"interrupted after {history.epochs} of {trainer.max_epochs} epochs: "
                "the same command resumes from the last checkpoint"
            )
        if is_first_process():
            previous_of(self.folder.last_checkpoint).unlink(missing_ok=True)
        total = cost.earlier + time.perf_counter() - clock
        seconds = {"total": total, **cost.means()}
        return self._record(task, data, history, seconds, state.attempts), checkpoint.asked

    def _build(self) -> tuple[Task, DataModule]:
        config = self.config
        check_settings(config)
        set_float32_precision(config.matmul_precision)
        lightning.seed_everything(config.seed + config.dataset.get("fold", 0), verbose=False)
        data = build_data(config)
        task = build_task(config, data)
        device = own_device(config.runtime.trainer.accelerator)
        compile_solves(task.model, config.runtime.compile, device)
        return task, data

    def _trainer(self, kept: list[Callback]) -> Trainer:
        config, runtime = self.config, self.config.runtime
        callbacks = [
            build(callback, f"{where}.{name}")
            for where, group in (
                ("runtime.callbacks", runtime.callbacks),
                ("measure", config.measure),
            )
            for name, callback in group.items()
            if callback
        ]
        logger = build(runtime.logger, "logger")
        logger.log_hyperparams(as_dict(config))
        trainer: Trainer = build(
            config.trainer,
            "trainer",
            **runtime.trainer,
            callbacks=[*kept, *callbacks],  # the checkpoint is moved to the end
            logger=logger,
            plugins=[WholeCheckpointIO(), *slurm_environment()],
        )
        _log_device(trainer, runtime.trainer.accelerator)
        return trainer

    def _facts(self) -> dict[str, Any]:
        """Return the description of the run that is saved in its checkpoints."""
        return {
            "command": command_line(HydraConfig.get()),
            "row": self.identity.row,
            "instance": self.identity.instance,
            "config": as_dict(self.config),
            "config_hash": self.identity.config_hash,
            "environment": self._environment(own_device(self.config.runtime.trainer.accelerator)),
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
        }

    def _environment(self, device: torch.device) -> dict[str, Any]:
        mode = self.config.runtime.compile
        compiled = {} if mode is None else {"compiled": f"solves, torch.compile mode {mode}"}
        return {**describe_environment(device), **compiled}

    def _record(
        self,
        task: Task,
        data: DataModule,
        history: History,
        seconds: dict[str, float],
        attempts: list[dict[str, Any]],
    ) -> Record:
        facts, label = data.facts(), self.config.label
        cut = [facts["reduced"]] if facts.get("reduced") else []
        changes = [*label.reduced, *cut, *self.identity.changes]
        parameters = list(task.model.parameters())
        device = task.trainer.strategy.root_device  # Lightning has moved the task off it by now
        environment = {**self._environment(device), "processes": task.trainer.world_size}
        if len(attempts) > 1:
            environment["earlier"] = attempts[:-1]
        return Record(
            row=self.identity.row,
            instance=self.identity.instance,
            label={key: str(label[key]) for key in ("dataset", "model", "method")},
            protocol="reduced" if changes else "full",
            changes=changes,
            result=history.result(task.metric, task.metric_mode),
            curves=history.recorded(task.trainer.callbacks),  # type: ignore[attr-defined]
            parameters={
                "total": sum(p.numel() for p in parameters),
                "trainable": sum(p.numel() for p in parameters if p.requires_grad),
            },
            data=facts,
            solver=history.solver_means(),
            seconds=seconds,
            memory=peak_memory(device),
            environment=environment,
            config=as_dict(self.config),
            config_hash=self.identity.config_hash,
            started=attempts[0]["started"],
            finished=datetime.now(UTC).isoformat(timespec="seconds"),
        )


def _log_device(trainer: Trainer, accelerator: str) -> None:
    device = trainer.strategy.root_device
    if accelerator != "auto" or not is_first_process():
        return
    if device.type == "cpu":
        log.warning("torch %s sees no GPU: training on the CPU", torch.__version__)
    else:
        log.info("training on %s", device)


def _silence_lightning() -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    for message in _KNOWN_WARNINGS:
        warnings.filterwarnings("ignore", message=message)


def _headline(record: Record) -> str:
    result, seconds = record.result, record.seconds
    selected = "" if result.selected is None else f", selected {result.selected:.4f}"
    return (
        f"{result.metric} best {result.best:.4f} (epoch {result.best_epoch}), "
        f"last {result.last:.4f}{selected}; {seconds['epoch']:.3f} s an epoch, "
        f"{seconds['total']:.0f} s in total"
    )
