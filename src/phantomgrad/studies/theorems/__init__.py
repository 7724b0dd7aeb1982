"""The three theorems of the paper, put to the test."""

from phantomgrad.studies.theorems.descent import DescentStudy
from phantomgrad.studies.theorems.series import SeriesStudy
from phantomgrad.studies.theorems.sgd import SGDStudy

__all__ = ["DescentStudy", "SGDStudy", "SeriesStudy"]
