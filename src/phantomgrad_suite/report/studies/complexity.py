"""Table 2: the paper's complexity of each gradient next to the measured one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phantomgrad_suite.report.catalogue import Entry
from phantomgrad_suite.report.studies.parts import Records, device, name
from phantomgrad_suite.report.table import Section
from phantomgrad_suite.runs.records import StudyRecord

QUANTITIES = (
    ("seconds", "Time", "ms", 1e3),
    ("graph_bytes", "Mem", "MiB", 2**-20),
    ("peak_bytes", "Peak Mem", "MiB", 2**-20),
)
# As printed: time, memory, peak memory.
_PAPER = {
    "Implicit": ("O(K)", "O(1)", "O(k)"),
    "UPG": ("O(k)", "O(k)", "O(k)"),
    "NPG": ("O(k)", "O(1)", "O(1)"),
}


def sections(entry: Entry, records: Records) -> list[Section]:
    """Return, for each device, the paper's orders and the fitted ones, then all measurements."""
    found = []
    for record in records:
        where = f"On {name(record, device(record), records)}"
        found += [_orders(where, record), _measurements(entry, f"{where}: measurements", record)]
    return found


def _orders(title: str, record: StudyRecord) -> Section:
    headings = ["Method"]
    for _, quantity, unit, _ in QUANTITIES:
        columns = ("paper", "measured", f"{unit} per k or K", "R²")
        headings += [f"{quantity}, {column}" for column in columns]
    rows = []
    for method in record.numbers["methods"]:
        row = [method["name"]]
        paper = _PAPER.get(method["name"].split(",")[0], ("", "", ""))
        for printed, (quantity, _, _, scale) in zip(paper, QUANTITIES, strict=True):
            fit = method["fits"][quantity]
            slope = _slope(fit, method["sizes"], scale)
            row += [printed, fit["order"], slope, f"{fit['r2']:.3f}"]
        rows.append(row)
    return Section.of_texts(title, headings, rows)


def _slope(fit: dict[str, Any], sizes: Sequence[int], scale: float) -> str:
    """Return the slope of a line, or the slopes at both ends of a parabola."""
    if len(fit["curve"]) < 3:
        return f"{fit['slope'] * scale:.3g}"
    _, linear, quadratic = fit["curve"]
    ends = [(linear + 2 * quadratic * size) * scale for size in (sizes[0], sizes[-1])]
    return f"{ends[0]:.2g} to {ends[1]:.2g}"


def _measurements(entry: Entry, title: str, record: StudyRecord) -> Section:
    numbers = record.numbers
    rows = [
        (
            method["name"],
            f"{method['variable']} = {size}",
            *(f"{method[quantity][i] * scale:.2f}" for quantity, _, _, scale in QUANTITIES),
        )
        for method in numbers["methods"]
        for i, size in enumerate(method["sizes"])
    ]
    headings = ("Method", "Size", *(f"{quantity} ({unit})" for _, quantity, unit, _ in QUANTITIES))
    text = entry.text["measured"].format(
        clock=numbers["clock"], state=numbers["state_bytes"] / 2**20
    )
    return Section.of_texts(title, headings, rows, words=2, text=text)
