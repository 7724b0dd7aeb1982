"""Studies of trained models: all estimators on one bench, and more steps in evaluation."""

import re
from collections.abc import Iterator

from phantomgrad_suite.report.catalogue import BLOCKS, Entry, entry_of
from phantomgrad_suite.report.document import Section, section
from phantomgrad_suite.report.studies.parts import Records, with_instance
from phantomgrad_suite.runs.identity import split_row
from phantomgrad_suite.runs.metrics import metric_of
from phantomgrad_suite.runs.records import StudyRecord


def bench(entry: Entry, records: Records) -> Iterator[Section]:
    """Yield a section for each setting."""
    for record in records:
        numbers, solve = record.numbers, record.numbers["solve"]
        cells = [
            {
                "Estimator": row["name"],
                "Cosine": f"{row['cosine']:.5f}",
                "Norm ratio": f"{row['norm_ratio']:.3f}",
                "Products": f"{sum(row['products'])}",  # over all layers
                "Time (ms)": f"{1e3 * row['seconds']:.2f}",
                "Peak memory (MiB)": f"{row['peak_bytes'] / 2**20:.2f}",
            }
            for row in numbers["estimators"]
        ]
        text = entry.text["section"].format(
            clock=numbers["clock"],
            radius=numbers["radius"],
            residual=max(numbers["exact"].values()),
            evaluations=" + ".join(map(str, solve["evaluations"])),
            milliseconds=1e3 * solve["seconds"],
        )
        title = with_instance(record, setting_name(record), records)
        yield section(title, cells, text=text)


def unrolled(entry: Entry, records: Records) -> Iterator[Section]:
    """Yield one section: a row for each model."""
    rows = []
    for record in records:
        metric = metric_of(record.numbers["metric"])
        values = {x["steps"]: metric.format(x["value"]) for x in record.numbers["scores"]}
        cells = {f"k = {k}": value for k, value in values.items()}
        rows.append({"Model": record.setting["model"], "Test": metric.heading, **cells})
    yield section("", rows, words=2)


def setting_name(record: StudyRecord) -> str:
    """Return the trained model of a record, or its synthetic setting."""
    setting = record.setting
    if setting["model"]:
        scale, row = split_row(re.sub(r"/seed[^/]*$", "", setting["model"]))
        table, _, name = row.rpartition("/")
        of = ", ".join(filter(None, (entry_of(table).label, BLOCKS.get(scale or "-"))))
        return f"Trained ({of}): {name}"
    return f"Synthetic, {setting['nonlinearity']}, L = {setting['lipschitz']}"
