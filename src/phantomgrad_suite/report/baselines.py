"""The best simple predictor on the data of a run, which a trained model must beat.

No claim rests on a row that does not. On data without recorded baselines all rows count.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from phantomgrad_suite.report.catalogue import Entry
from phantomgrad_suite.report.document import Section, section
from phantomgrad_suite.runs.archive import Archive
from phantomgrad_suite.runs.metrics import Metric, metric_of
from phantomgrad_suite.runs.records import Record, StudyRecord

_FOLDER = "baselines"
_NGRAMS, _NGRAM = "Kneser-Ney", "Kneser-Ney, order 3"  # the one of them that must be beaten


class Baseline(NamedTuple):
    """A predictor and its test score, in the unit of a record."""

    name: str
    score: float
    metric: Metric

    def is_beaten_by(self, value: float) -> bool:
        """Return whether a value of a run is better; NaN is not."""
        higher = self.metric.higher_is_better
        return value > self.score if higher else value < self.score

    def against(self, value: float) -> str:
        """Return a value beside the score, with a digit more than in tables."""
        metric = replace(self.metric, decimals=self.metric.decimals + 1)
        scores = f"{metric.format(value)} against {metric.format(self.score)}"
        return " ".join(filter(None, (scores, metric.unit))) + f", {self.name}"

    def __str__(self) -> str:
        return f"{self.metric.format(self.score)} ({self.name})"


Baselines = Mapping[tuple[str, str], Baseline]
"""The best baseline by the fingerprint of the data and the key of the metric."""


def best_baselines(records: Iterable[StudyRecord]) -> Baselines:
    """Return the best baseline of all records on the same data."""
    found: dict[tuple[str, str], Baseline] = {}
    for record in records:
        numbers = record.numbers
        metric, key = (
            metric_of(numbers["metric"]),
            (numbers["data"]["fingerprint"], numbers["metric"]),
        )
        for name, score in numbers["scores"].items():
            wanted = name == _NGRAM or not name.startswith(_NGRAMS)
            if wanted and (key not in found or found[key].is_beaten_by(score)):
                found[key] = Baseline(name, score, metric)
    return found


def read_baselines(*archives: Archive | None) -> Baselines:
    """Return the best baselines in some archives."""
    known = filter(None, archives)
    return best_baselines(r for archive in known for r in archive.of(StudyRecord, _FOLDER))


def baseline_of(record: Record, baselines: Baselines) -> Baseline | None:
    """Return what a run must beat, if it is known."""
    return baselines.get((str(record.data.get("fingerprint", "")), record.result.metric))


def tables(entry: Entry, records: Sequence[StudyRecord]) -> Iterator[Section]:
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
