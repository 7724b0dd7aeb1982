"""Studies: measurements of gradients and of training steps, without training a model."""

from phantomgrad_suite.studies.base import Findings, Study
from phantomgrad_suite.studies.complexity import Complexity
from phantomgrad_suite.studies.figure1 import Precision
from phantomgrad_suite.studies.figure4 import Dynamics
from phantomgrad_suite.studies.theorem1 import AscentCondition
from phantomgrad_suite.studies.theorem2 import SeriesConvergence
from phantomgrad_suite.studies.theorem3 import SGDConvergence
from phantomgrad_suite.studies.throughput import Throughput

__all__ = [
    "AscentCondition",
    "Complexity",
    "Dynamics",
    "Findings",
    "Precision",
    "SGDConvergence",
    "SeriesConvergence",
    "Study",
    "Throughput",
]
