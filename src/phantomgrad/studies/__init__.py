"""Studies: what is measured without training a model of the suite."""

from phantomgrad.studies.base import Findings, Study
from phantomgrad.studies.complexity import Complexity
from phantomgrad.studies.dynamics import Dynamics
from phantomgrad.studies.precision import Precision
from phantomgrad.studies.throughput import Throughput

__all__ = ["Complexity", "Dynamics", "Findings", "Precision", "Study", "Throughput"]
