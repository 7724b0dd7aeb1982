"""Callbacks of training runs: metrics, costs, progress, and measurements along the run.

They are imported on first use, so that :mod:`.wandb_naming` loads without torch and Lightning.
"""

from importlib import import_module
from typing import Any

_MODULES = {
    "Collapse": "collapse",
    "CostMeter": "cost",
    "EpochProgress": "progress",
    "GradientPrecision": "gradient_precision",
    "History": "curves",
    "Series": "curves",
    "SpectralRadius": "spectral_radius",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
