"""Scores of simple predictors on the data of the experiments."""

from collections.abc import Iterator

from phantomgrad_suite.report.catalogue import Entry
from phantomgrad_suite.report.document import Section, section
from phantomgrad_suite.report.studies.parts import Records
from phantomgrad_suite.runs.metrics import metric_of


def baselines(entry: Entry, records: Records) -> Iterator[Section]:
    """Yield one section: a row for each predictor on each data set."""
    rows = []
    for record in records:
        numbers = record.numbers
        metric = metric_of(numbers["metric"])
        rows += [
            {"Data": numbers["data"]["name"], "Baseline": name, "Test": metric.heading}
            | {"Score": metric.format(score)}
            for name, score in numbers["scores"].items()
        ]
    yield section("", rows, words=3)
