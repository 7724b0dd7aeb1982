"""Studies: measurements of gradients, training steps and finished runs, without training runs."""

from phantomgrad_suite.studies.base import Findings, Study
from phantomgrad_suite.studies.complexity import Complexity
from phantomgrad_suite.studies.figure1 import Precision
from phantomgrad_suite.studies.figure4 import Dynamics
from phantomgrad_suite.studies.gradients import GradientBench
from phantomgrad_suite.studies.scaling import Scaling
from phantomgrad_suite.studies.theorems.theorem1 import AscentCondition
from phantomgrad_suite.studies.theorems.theorem2 import SeriesConvergence
from phantomgrad_suite.studies.theorems.theorem3 import SGDConvergence
from phantomgrad_suite.studies.throughput import Throughput

__all__ = [
    "AscentCondition",
    "Complexity",
    "Dynamics",
    "Findings",
    "GradientBench",
    "Precision",
    "SGDConvergence",
    "Scaling",
    "SeriesConvergence",
    "Study",
    "Throughput",
]
