"""What looks on while a run trains: metrics, costs, progress, and the curves of its record."""

from phantomgrad.callbacks.collapse import Collapse
from phantomgrad.callbacks.cost import CostMeter
from phantomgrad.callbacks.history import History
from phantomgrad.callbacks.precision import GradientPrecision
from phantomgrad.callbacks.progress import EpochProgress
from phantomgrad.callbacks.series import Series
from phantomgrad.callbacks.spectrum import SpectralRadius

__all__ = [
    "Collapse",
    "CostMeter",
    "EpochProgress",
    "GradientPrecision",
    "History",
    "Series",
    "SpectralRadius",
]
