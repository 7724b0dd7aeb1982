"""Figure 4 as a table: gradient solvers as the conditioning of the system gets worse."""

from __future__ import annotations

from typing import Any

from phantomgrad_suite.report.catalogue import Entry
from phantomgrad_suite.report.studies.parts import Records, name, number
from phantomgrad_suite.report.table import Section

MEDIAN = 2  # of the recorded quantiles
_HEADINGS = ("L", "κ", "Method", "Objective", "Relative error", "Cosine", "L1 norm", "of g")

Method = dict[str, Any]


def sections(entry: Entry, records: Records) -> list[Section]:
    """Return the medians after the last iteration, a section for each F."""
    return [
        Section.of_texts(
            f"F: {name(record, record.setting['nonlinearity'], records)}",
            _HEADINGS,
            [
                _row(level, method)
                for level in record.numbers["levels"]
                for method in level["methods"]
            ],
            words=3,
            text=entry.text["section"].format(**record.setting),
        )
        for record in records
    ]


def _row(level: dict[str, Any], method: Method) -> tuple[str, ...]:
    def last(quantity: str, digits: str) -> str:
        return number(method[quantity][-1][MEDIAN], digits)

    return (
        f"{level['lipschitz']}",
        f"{level['condition']:.3g}",
        label(method, "λ"),
        last("objective", ".2e"),
        last("relative_error", ".2e"),
        last("cosine", ".4f"),
        last("l1_norm", ".4g"),
        number(level["l1_norm"][MEDIAN], ".4g"),
    )


def label(method: Method, damping: str) -> str:
    """Return the name of a method, with ``damping`` as the symbol of its λ if it has one."""
    if method["damping"] is None:
        return str(method["name"])
    return f"{method['name']}, {damping} = {method['damping']}"
