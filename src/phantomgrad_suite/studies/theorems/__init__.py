"""The three theorems of the paper, put to the test."""

from phantomgrad_suite.studies.theorems.descent import DescentStudy
from phantomgrad_suite.studies.theorems.series import SeriesStudy
from phantomgrad_suite.studies.theorems.sgd import SGDStudy

__all__ = ["DescentStudy", "SGDStudy", "SeriesStudy"]
