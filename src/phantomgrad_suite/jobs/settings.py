"""Settings of a run that neither Lightning nor a constructor refuses, though they cannot work."""

import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from phantomgrad_suite.jobs.types import annotations, check_types
from phantomgrad_suite.runs.errors import SettingError

# The arguments of Lightning's Trainer that have no influence on a result ...
RUNTIME_TRAINER = {
    *("accelerator", "benchmark", "detect_anomaly", "deterministic", "enable_model_summary"),
    *("enable_progress_bar", "log_every_n_steps", "num_sanity_val_steps", "profiler"),
}
# ... and those that a run sets itself, or does without.
OF_THE_RUN = {
    *("logger", "callbacks", "plugins", "default_root_dir", "enable_checkpointing", "barebones"),
    *("fast_dev_run", "val_check_interval", "limit_test_batches"),
}
_RUNTIME_DATASET = {"root", "test_batch_size", "workers"}


def check_settings(config: DictConfig) -> None:
    """Raise :class:`SettingError` for a setting that cannot work or has no effect."""
    trainer, runtime = config.trainer, config.runtime
    if unused := OF_THE_RUN & {*trainer, *runtime.trainer}:
        raise SettingError(
            f"trainer.{min(unused)} cannot be set, since a run sets it itself: callbacks and "
            "loggers are under runtime, and +trainer.limit_train_batches=5 makes a run short"
        )
    if HydraConfig.initialized() and "gradient=one_step" in HydraConfig.get().overrides.task:
        _check_one_step(config.gradient)
    check_types(trainer, "trainer")
    check_types(runtime.trainer, "runtime.trainer", annotations(trainer.get("_target_", "")))
    epochs, evaluated = trainer.max_epochs, trainer.get("check_val_every_n_epoch", 1)
    if type(epochs) is not int or epochs < 1:
        raise SettingError(f"trainer.max_epochs must be a positive integer, got {epochs!r}")
    if not evaluated or epochs % evaluated:  # the last epoch is evaluated
        raise SettingError(
            f"trainer.check_val_every_n_epoch must divide trainer.max_epochs={epochs}, "
            f"got {evaluated!r}"
        )
    if "spawn" in str(trainer.get("strategy")):  # what its processes collect would be lost
        raise SettingError(f"trainer.strategy must not spawn, as ddp, got {trainer.strategy!r}")
    on_cpu = runtime.trainer.accelerator == "cpu" or not torch.accelerator.is_available()
    if on_cpu and str(trainer.get("precision")) in ("16", "16-mixed"):  # Lightning takes bf16
        raise SettingError("trainer.precision must be 32-true or bf16-mixed on a CPU, got 16-mixed")
    if config.nonfinite not in ("stop", None):
        raise SettingError(f"nonfinite must be stop or null, got {config.nonfinite!r}")
    own = _RUNTIME_DATASET - set(config.dataset)  # texts have a decisive test_batch_size
    decisive = [f"trainer.{key}" for key in runtime.trainer if key not in RUNTIME_TRAINER]
    decisive += [f"dataset.{key}" for key in runtime.dataset if key not in own]
    if decisive:
        raise SettingError(
            f"runtime.{decisive[0]} may change the result, so it must identify the run: "
            f"set {decisive[0]} (with a plus if it is not set yet)"
        )


def _check_one_step(gradient: DictConfig) -> None:
    """Raise if a row's own steps or damping win over those of ``gradient=one_step``."""
    steps, damping = gradient.get("steps"), gradient.get("damping")
    if (steps, damping) != (1, 1.0):
        raise SettingError(
            f"gradient=one_step is UPG A(1, 1), but the row or command sets gradient.steps={steps} "
            f"and gradient.damping={damping}: add gradient.steps=1 gradient.damping=1.0"
        )
