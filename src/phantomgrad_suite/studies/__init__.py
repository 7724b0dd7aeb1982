"""Studies: measurements of gradients, training steps and finished runs, without training runs."""

from phantomgrad_suite.studies.base import Findings as Findings
from phantomgrad_suite.studies.base import Study as Study
from phantomgrad_suite.studies.baselines import GraphBaselines as GraphBaselines
from phantomgrad_suite.studies.baselines import ImageBaselines as ImageBaselines
from phantomgrad_suite.studies.baselines import TextBaselines as TextBaselines
from phantomgrad_suite.studies.complexity import Complexity as Complexity
from phantomgrad_suite.studies.figure1 import Precision as Precision
from phantomgrad_suite.studies.figure4 import Dynamics as Dynamics
from phantomgrad_suite.studies.gradients import GradientBench as GradientBench
from phantomgrad_suite.studies.theorems.theorem1 import AscentCondition as AscentCondition
from phantomgrad_suite.studies.theorems.theorem2 import SeriesConvergence as SeriesConvergence
from phantomgrad_suite.studies.theorems.theorem3 import SGDConvergence as SGDConvergence
from phantomgrad_suite.studies.throughput import Throughput as Throughput
from phantomgrad_suite.studies.unrolling import UnrolledEvaluation as UnrolledEvaluation
