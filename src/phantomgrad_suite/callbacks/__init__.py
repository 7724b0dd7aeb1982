"""Callbacks of training runs: metrics, costs, progress, and measurements along the run."""

from phantomgrad_suite.callbacks.capture import SpectralRadius
from phantomgrad_suite.callbacks.collapse import Collapse
from phantomgrad_suite.callbacks.example import Example
from phantomgrad_suite.callbacks.gradient_precision import GradientPrecision
from phantomgrad_suite.callbacks.health import SolverMonitor
from phantomgrad_suite.callbacks.progress import EpochProgress
from phantomgrad_suite.callbacks.segment_precision import SegmentPrecision

__all__ = [
    "Collapse",
    "EpochProgress",
    "Example",
    "GradientPrecision",
    "SegmentPrecision",
    "SolverMonitor",
    "SpectralRadius",
]
