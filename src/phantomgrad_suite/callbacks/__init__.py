"""Callbacks of training runs: metrics, costs, progress, and measurements along the run."""

from phantomgrad_suite.callbacks.capture import SpectralRadius as SpectralRadius
from phantomgrad_suite.callbacks.gradient_precision import GradientPrecision as GradientPrecision
from phantomgrad_suite.callbacks.health import SolverMonitor as SolverMonitor
from phantomgrad_suite.callbacks.progress import EpochProgress as EpochProgress
