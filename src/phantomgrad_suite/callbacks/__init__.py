"""What looks on while a run trains: metrics, costs, progress, and the curves of its record."""

from phantomgrad_suite.callbacks.collapse import Collapse
from phantomgrad_suite.callbacks.cost import CostMeter
from phantomgrad_suite.callbacks.history import History
from phantomgrad_suite.callbacks.precision import GradientPrecision
from phantomgrad_suite.callbacks.progress import EpochProgress
from phantomgrad_suite.callbacks.series import Series
from phantomgrad_suite.callbacks.spectrum import SpectralRadius

__all__ = [
    "Collapse",
    "CostMeter",
    "EpochProgress",
    "GradientPrecision",
    "History",
    "Series",
    "SpectralRadius",
]
