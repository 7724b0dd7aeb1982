"""Figure 1 as a table: the precision of the phantom gradient in the synthetic setting."""

from __future__ import annotations

from typing import Any

from phantomgrad_suite.report.catalogue import Entry
from phantomgrad_suite.report.studies.parts import Records, name
from phantomgrad_suite.report.table import Section
from phantomgrad_suite.runs.records import StudyRecord

FORMS = ("NPG", "UPG")
_ORDER = ("tanh", "relu", "linear")

Estimate = dict[str, Any]


def sections(entry: Entry, records: Records) -> list[Section]:
    """Return the mean cosines and norm ratios of all estimates, a section for each F."""
    records = in_order(records)
    return [_section(entry, record, title(record, records)) for record in records]


def _section(entry: Entry, record: StudyRecord, heading: str) -> Section:
    columns = {
        f"{form}, λ = {damping}": select(record, form, damping)
        for form in FORMS
        for damping in dampings([record])
    }
    rows = []
    for estimates in zip(*columns.values(), strict=True):
        cosines = [f"{e['states']['mean']:.4f} ({e['rows']['mean']:.4f})" for e in estimates]
        ratios = [f"{e['norm_ratio']['mean']:.3f}" for e in estimates]
        rows.append([str(estimates[0]["steps"]), *cosines, *ratios])
    exact = record.numbers["exact"]
    text = entry.text["section"].format(
        **record.setting,
        reduced=f" Reduced: {', '.join(record.changes)}." if record.changes else "",
        agreement=exact["agreement"]["percentiles"][0],
        residual=exact["residual"]["percentiles"][-1],
    )
    headings = ("k", *columns, *(f"norm, {column}" for column in columns))
    return Section.of_texts(heading, headings, rows, words=0, text=text)


def in_order(records: Records) -> list[StudyRecord]:
    """Return the records by their F, that of the paper first."""
    names = [*_ORDER, *sorted({r.setting["nonlinearity"] for r in records} - set(_ORDER))]
    return sorted(records, key=lambda r: (names.index(r.setting["nonlinearity"]), r.instance))


def title(record: StudyRecord, records: Records) -> str:
    """Return the F of a record."""
    return f"F: {name(record, record.setting['nonlinearity'], records)}"


def select(record: StudyRecord, form: str, damping: float) -> list[Estimate]:
    """Return the estimates of one form and damping, by k."""
    estimates = record.numbers["estimates"]
    return [e for e in estimates if e["form"] == form and e["damping"] == damping]


def dampings(records: Records) -> list[float]:
    """Return every λ of the records."""
    return sorted({e["damping"] for r in records for e in r.numbers["estimates"]})
