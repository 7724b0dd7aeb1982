"""What configurations refer to by ``${...}``: every composition needs these resolvers."""

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from phantomgrad_suite.runs.configs import CONFIGS

_PHANTOM = {"NeumannPhantomGradient": "NPG", "UnrolledPhantomGradient": "UPG"}
_OTHERS = {"BackpropThroughSolver": "BPTT", "ImplicitGradient": "Implicit"}


def _method(*, _root_: DictConfig) -> str:
    """Return how tables name the gradient of a run: ``Implicit``, ``JR + UPG A(5, 0.8)``."""
    gradient = _root_.gradient
    kind = str(gradient._target_).rpartition(".")[2]
    name = _phantom(gradient, kind) if kind in _PHANTOM else _OTHERS.get(kind, kind)
    return f"JR + {name}" if _root_.task.get("jacobian") else name


def _phantom(gradient: DictConfig, kind: str) -> str:
    steps, damping = gradient.get("steps"), gradient.get("damping")
    if (_PHANTOM[kind], steps, damping) == ("UPG", 1, 1.0):
        return "One-step"
    damped = damping if isinstance(damping, float | int) else "adaptive"
    return f"{_PHANTOM[kind]} A({steps}, {damped})"


def _scaled(value: float, at: int, now: int) -> float:
    """Return a setting that grows with another: it is ``value`` where the other one is ``at``.

    So learning rates follow batch sizes (the linear rule), and memories the length of segments.
    """
    return value * now // at if isinstance(value, int) else value * now / at


def _batch(*, _root_: DictConfig) -> int:
    """Return the batch size of all processes together, as far as their number is known."""
    numbers = (_root_.trainer.get(name, 1) for name in ("devices", "num_nodes"))
    return math.prod((_root_.dataset.batch_size, *(n for n in numbers if isinstance(n, int))))


OmegaConf.register_new_resolver("batch", _batch, replace=True)
OmegaConf.register_new_resolver("joined", "/".join, replace=True)
OmegaConf.register_new_resolver("scaled", _scaled, replace=True)
OmegaConf.register_new_resolver("method", _method, replace=True)


def composing() -> AbstractContextManager[Any]:
    """Return a context for ``hydra.compose``, inside a running Hydra application or outside."""
    if GlobalHydra.instance().is_initialized():
        return nullcontext()
    sources = HydraConfig.get().runtime.config_sources if HydraConfig.initialized() else []
    folder = next((source.path for source in sources if source.provider == "main"), str(CONFIGS))
    return initialize_config_dir(folder, version_base="1.3")
