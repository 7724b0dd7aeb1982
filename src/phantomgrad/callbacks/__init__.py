"""What happens around a training run: time, memory, randomness, progress, and the record."""

from phantomgrad.callbacks.checkpoint import TimedCheckpoint, WholeCheckpointIO
from phantomgrad.callbacks.collapse import Collapse
from phantomgrad.callbacks.cost import CostMeter
from phantomgrad.callbacks.history import History
from phantomgrad.callbacks.place import LoaderPlace
from phantomgrad.callbacks.precision import GradientPrecision
from phantomgrad.callbacks.progress import EpochProgress
from phantomgrad.callbacks.randomness import RandomState
from phantomgrad.callbacks.series import Series
from phantomgrad.callbacks.spectrum import SpectralRadius

__all__ = [
    "Collapse",
    "CostMeter",
    "EpochProgress",
    "GradientPrecision",
    "History",
    "LoaderPlace",
    "RandomState",
    "Series",
    "SpectralRadius",
    "TimedCheckpoint",
    "WholeCheckpointIO",
]
