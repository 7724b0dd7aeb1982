"""Losses and metrics of each kind of problem, as Lightning modules."""

from phantomgrad_suite.tasks.base import Task as Task
from phantomgrad_suite.tasks.classification import Classification as Classification
from phantomgrad_suite.tasks.classification import GraphClassification as GraphClassification
from phantomgrad_suite.tasks.classification import ImageClassification as ImageClassification
from phantomgrad_suite.tasks.classification import (
    MultilabelNodeClassification as MultilabelNodeClassification,
)
from phantomgrad_suite.tasks.classification import NodeClassification as NodeClassification
from phantomgrad_suite.tasks.language import LanguageModelling as LanguageModelling
from phantomgrad_suite.tasks.regularisation import (
    FixedPointRegularisation as FixedPointRegularisation,
)
from phantomgrad_suite.tasks.regularisation import JacobianRegularisation as JacobianRegularisation
from phantomgrad_suite.tasks.regularisation import Regularisation as Regularisation
from phantomgrad_suite.tasks.regularisation import SpectralRegularisation as SpectralRegularisation
