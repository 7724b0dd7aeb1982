"""Studies: what is measured without training a model of the suite."""

from phantomgrad_suite.studies.base import Findings, Study
from phantomgrad_suite.studies.complexity import Complexity
from phantomgrad_suite.studies.dynamics import Dynamics
from phantomgrad_suite.studies.precision import Precision
from phantomgrad_suite.studies.throughput import Throughput

__all__ = ["Complexity", "Dynamics", "Findings", "Precision", "Study", "Throughput"]
