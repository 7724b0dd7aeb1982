"""One training run: compose -> identity -> build -> ``Trainer.fit`` -> record, in this order.

``start.py`` imports this when a run has to be executed; ``jobs/job.py`` has the life of a run
around it: its folder, its lock, what is skipped.
"""

import logging
import signal
import time
from contextlib import nullcontext
from typing import Any

import torch
from hydra.core.hydra_config import HydraConfig
from lightning import Callback, Trainer
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.loggers import Logger, TensorBoardLogger
from omegaconf import DictConfig

from phantomgrad.checks import ShapeError
from phantomgrad_suite.callbacks.compiled import CompiledCells
from phantomgrad_suite.callbacks.cost import CostMeter, EvaluationTime, peak_memory
from phantomgrad_suite.callbacks.curves import History
from phantomgrad_suite.callbacks.weights import KeptWeights
from phantomgrad_suite.checkpoint.distributed import explain_lost_worker
from phantomgrad_suite.checkpoint.finite import Diverged, FiniteSteps
from phantomgrad_suite.checkpoint.last import LastCheckpoint, Stopped
from phantomgrad_suite.checkpoint.state import RunState
from phantomgrad_suite.checkpoint.storage import WholeCheckpointIO, newest_intact, previous_of
from phantomgrad_suite.cluster.slurm import slurm_environment
from phantomgrad_suite.data import DataModule
from phantomgrad_suite.jobs.build import build, build_task, check_search, prepare, refused
from phantomgrad_suite.jobs.command_line import command_line
from phantomgrad_suite.jobs.compose import as_dict
from phantomgrad_suite.jobs.environment import (
    check_processes,
    describe_environment,
    load_average,
)
from phantomgrad_suite.jobs.job import Job, now, origin, protocol
from phantomgrad_suite.jobs.processes import is_first_process
from phantomgrad_suite.runs.errors import SettingError, UserError
from phantomgrad_suite.runs.folder import RunFolder
from phantomgrad_suite.runs.identity import Identity
from phantomgrad_suite.runs.records import Record, Result
from phantomgrad_suite.tasks import Task

log = logging.getLogger(__name__)


def execute(config: DictConfig, job: Job) -> Stopped | None:
    """Execute a pending run and write its record; return what stopped it in its last epoch."""
    try:
        record, signum = _execute(config, job.identity, job.folder)
    except ShapeError as error:  # data that do not fit the model
        raise UserError(str(error)) from error
    job.finish(record)
    if signum not in (signal.SIGTERM, signal.SIGINT):  # SIGUSR2 is for jobs of one run
        return None
    log.warning("stopped by %s, at the end of the run", signal.Signals(signum).name)
    return Stopped(signum)


def _execute(config: DictConfig, identity: Identity, folder: RunFolder) -> tuple[Record, int]:
    """Build, fit and record; return the record, and the signal of the last epoch or 0."""
    clock, load = time.perf_counter(), {"start": load_average()}
    known = origin(config, identity)  # Hydra resolves references where it builds an object
    data = prepare(config)
    task, described = build_task(config, data), data.facts()
    if "fingerprint" not in described:
        raise SettingError(f"facts() of {type(data).__name__} must have a fingerprint of the data")
    if "tune" in config.runtime:
        check_search(config, data, task)
    facts = {
        **known,
        "changes": [*identity.changes],
        "command": command_line(HydraConfig.get()),
        "data": described["fingerprint"],
    }
    history, cost, state = History(), CostMeter(), RunState(facts)
    checkpoint: LastCheckpoint = build(
        config.runtime.checkpoint,
        "runtime.checkpoint",
        LastCheckpoint,
        path=folder.last_checkpoint,
    )
    finite = FiniteSteps() if config.nonfinite else None
    kept = KeptWeights(history) if config.runtime.keep_weights else None
    compiled = CompiledCells(config.runtime.compile)
    callbacks = [cost, EvaluationTime(), compiled, history, state, finite, kept, checkpoint]
    trainer = _trainer(config, [*filter(None, callbacks)])
    device = trainer.strategy.root_device
    facts["environment"] = describe_environment(device)
    diverged = _fit(trainer, task, data, folder, history, state)
    if diverged and finite:
        diverged["loss"] = finite.loss
    load |= {"end": load_average(), "cpu_over_wall": cost.cpu_over_wall()}
    seen = {"processes": trainer.world_size, "compiled": compiled.mode, "load": load}
    environment = {**facts["environment"], **seen}
    if len(state.attempts) > 1:
        environment["earlier"] = state.attempts[:-1]
    writes, parameters = is_first_process() and not diverged, list(task.model.parameters())
    record = Record(
        **{**known, "started": state.attempts[0]["started"]},
        **protocol(config, identity, *filter(None, [described.get("reduced")])),
        label={key: str(config.label[key]) for key in ("dataset", "model", "method")},
        result=(Result.missing if diverged else history.result)(task.metric, task.metric_mode),
        curves=history.recorded(trainer.callbacks),  # type: ignore[attr-defined]
        parameters={
            "total": sum(p.numel() for p in parameters),
            "trainable": sum(p.numel() for p in parameters if p.requires_grad),
        },
        data=described,
        solver=history.solver_means(),
        seconds={"total": cost.earlier + time.perf_counter() - clock, **cost.means()},
        memory=peak_memory(device),
        weights=kept.write(task, folder.path) if kept and writes else {},
        diverged=diverged,
        environment=environment,
        finished=now(),
    )
    if is_first_process():
        _tell(config, identity, folder, record, trainer.logger)
    return record, checkpoint.stop_signal


def _trainer(config: DictConfig, kept: list[Callback]) -> Trainer:
    runtime = config.runtime
    groups = {"runtime.callbacks": runtime.callbacks, "measure": config.measure}
    callbacks = [
        build(callback, f"{where}.{name}", Callback)
        for where, group in groups.items()
        for name, callback in group.items()
        if callback
    ]
    logger = build(runtime.logger, "runtime.logger", Logger)
    of_the_row = ("paper", "table")  # wandb has a table of its own
    logger.log_hyperparams({k: v for k, v in as_dict(config).items() if k not in of_the_row})
    if is_first_process():
        with refused("runtime.logger cannot be built"):
            _ = logger.experiment  # TensorBoard reads its arguments only here
    trainer: Trainer = build(
        config.trainer,
        "trainer",
        Trainer,
        **runtime.trainer,
        callbacks=[*kept, *callbacks],  # Lightning moves the checkpoint to the end
        logger=logger,
        plugins=[WholeCheckpointIO(), *slurm_environment()],
    )
    check_processes(config, trainer)
    if runtime.trainer.accelerator == "auto" and is_first_process():
        device = trainer.strategy.root_device
        if device.type == "cpu":
            log.warning("torch %s sees no GPU: training on the CPU", torch.__version__)
        else:
            log.info("training on %s", device)
    return trainer


def _fit(
    trainer: Trainer,
    task: Task,
    data: DataModule,
    folder: RunFolder,
    history: History,
    state: RunState,
) -> dict[str, Any]:
    """Train to the end; return ``diverged`` of the record, empty unless the run did."""
    if path := newest_intact(folder.last_checkpoint, tidy=is_first_process()):
        state.resume(path)
    with explain_lost_worker() if trainer.world_size > 1 else nullcontext():
        try:
            trainer.fit(task, data, ckpt_path=path, weights_only=True)
        except Diverged as error:
            place = {"step": trainer.global_step, "epoch": trainer.current_epoch + 1}
            return {**place, "reason": str(error)}
        except MisconfigurationException as error:  # a share of batches that is less than one
            raise SettingError(f"trainer: {' '.join(str(error).split())}") from error
    if history.epochs < trainer.max_epochs:  # type: ignore[operator]
        raise UserError(
            f"ended after {history.epochs} of {trainer.max_epochs} epochs: the same command "
            "resumes from the last checkpoint, without trainer.max_steps and trainer.max_time"
        )
    if is_first_process():
        previous_of(folder.last_checkpoint).unlink(missing_ok=True)
    return {}


def _tell(
    config: DictConfig,
    identity: Identity,
    folder: RunFolder,
    record: Record,
    logger: Logger | None,
) -> None:
    """Say how the run ended and where it lies, and give its scores to the dashboard."""
    level, ended = logging.WARNING if record.diverged else logging.INFO, _headline(record)
    log.log(level, "%s on %s: %s: %s", identity, record.label["dataset"], ended, folder.path)
    try:
        if logger:
            logger.log_hyperparams(hyperparameters(config), *_score(logger, record))
            logger.finalize("success")  # which the trainer has done before: it was opened again
    except Exception as error:  # of a dashboard, for which no record may be lost
        log.warning("%s: its logger refused the scores: %s", identity, error)


def hyperparameters(config: DictConfig) -> dict[str, Any]:
    """Return what dashboards sort and filter runs by, under short names."""
    gradient, label = config.gradient, config.label
    damping = gradient.get("damping")
    return {
        "data": str(label.dataset),
        "model name": str(label.model),
        "method": str(label.method),
        "forward solver": str(config.solver.get("_target_", "")).rpartition(".")[2],
        "k": gradient.get("steps"),
        "lambda": damping if isinstance(damping, float | int | None) else "adaptive",
        "rate": config.optimizer.get("lr"),
        "seed": config.seed,
    }


def _score(logger: Logger, record: Record) -> tuple[dict[str, float], ...]:
    """Return the scores that TensorBoard lists with hyperparameters; wandb summarises curves."""
    result = record.result
    known = isinstance(logger, TensorBoardLogger) and not record.diverged
    return ({f"best/{result.metric}": result.best, f"last/{result.metric}": result.last},) * known


def _headline(record: Record) -> str:
    if record.diverged:
        return (
            f"diverged, which its record states: {record.diverged['reason']}. Try a smaller "
            "optimizer.lr or gradient.damping, or more solver.max_evaluations; to see where it "
            "arose, delete its record.json and add +runtime.trainer.detect_anomaly=true"
        )
    result, seconds = record.result, record.seconds
    selected = "" if result.selected is None else f", selected {result.selected:.4f}"
    return (
        f"{result.metric} best {result.best:.4f} (epoch {result.best_epoch}), "
        f"last {result.last:.4f}{selected}; {seconds['epoch']:.3f} s an epoch, "
        f"{seconds['total']:.0f} s in total"
    )
