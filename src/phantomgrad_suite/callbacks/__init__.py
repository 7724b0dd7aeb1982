"""Callbacks of training runs: metrics, costs, progress, and measurements along the run.

They are imported on first use, so that :mod:`.wandb_naming` loads without torch and Lightning.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from phantomgrad_suite.callbacks.collapse import Collapse as Collapse
    from phantomgrad_suite.callbacks.cost import CostMeter as CostMeter
    from phantomgrad_suite.callbacks.curves import History as History
    from phantomgrad_suite.callbacks.curves import Series as Series
    from phantomgrad_suite.callbacks.gradient_precision import (
        GradientPrecision as GradientPrecision,
    )
    from phantomgrad_suite.callbacks.progress import EpochProgress as EpochProgress
    from phantomgrad_suite.callbacks.spectral_radius import SpectralRadius as SpectralRadius

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
