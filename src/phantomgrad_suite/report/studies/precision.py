"""Figures 1 and 4 as tables: gradients in the synthetic setting, and under ill-conditioning."""

from collections.abc import Iterator
from itertools import groupby

from phantomgrad_suite.report.catalogue import Entry
from phantomgrad_suite.report.document import DASH, Section, section
from phantomgrad_suite.report.studies.parts import Numbers, Records, with_instance
from phantomgrad_suite.runs.records import StudyRecord

MEDIAN = 2  # of the quantiles of Figure 4


def synthetic(entry: Entry, records: Records) -> Iterator[Section]:
    """Yield the mean cosines and norm ratios of all estimates, a section for each F."""
    for record in by_nonlinearity(records):
        columns = {f"{form}, λ = {d}": found for (form, d), found in by_form(record).items()}
        rows = []
        for i, first in enumerate(next(iter(columns.values()))):
            row = {"k": str(first["steps"])}
            for name, column in columns.items():
                cosines = [column[i][which]["mean"] for which in ("states", "rows")]
                row[name] = f"{cosines[0]:.4f} ({cosines[1]:.4f})"
            for name, column in columns.items():
                row[f"norm, {name}"] = f"{column[i]['norm_ratio']['mean']:.3f}"
            rows.append(row)
        exact = record.numbers["exact"]
        text = entry.text["section"].format(
            **record.setting,
            reduced=f" Reduced: {', '.join(record.changes)}." if record.changes else "",
            agreement=exact["agreement"]["percentiles"][0],
            residual=exact["residual"]["percentiles"][-1],
        )
        title = f"F: {with_instance(record, record.setting['nonlinearity'], records)}"
        yield section(title, rows, words=0, text=text)


def by_nonlinearity(records: Records) -> list[StudyRecord]:
    """Return the records by their F, that of the paper first, of each F those of most samples."""

    def order(record: StudyRecord) -> tuple[bool, str]:
        return record.setting["nonlinearity"] != "tanh", record.setting["nonlinearity"]

    found: list[StudyRecord] = []
    for _, group in groupby(sorted(records, key=order), order):
        same = list(group)
        most = max(record.setting["samples"] for record in same)
        found += [record for record in same if record.setting["samples"] == most]
    return found


def by_form(record: StudyRecord) -> dict[tuple[str, float], list[Numbers]]:
    """Return the estimates by k, for each form and λ."""
    found: dict[tuple[str, float], list[Numbers]] = {}
    for estimate in sorted(record.numbers["estimates"], key=lambda e: (e["form"], e["damping"])):
        found.setdefault((estimate["form"], estimate["damping"]), []).append(estimate)
    return found


def conditioning(entry: Entry, records: Records) -> Iterator[Section]:
    """Yield the medians after the last iteration, a section for each F."""
    for record in records:
        rows = [
            {
                "L": f"{level['lipschitz']}",
                "κ": f"{level['condition']:.3g}",
                "Method": solver_name(method),
                "Objective": _number(method["objective"][-1][MEDIAN], ".2e"),
                "Relative error": _number(method["relative_error"][-1][MEDIAN], ".2e"),
                "Cosine": _number(method["cosine"][-1][MEDIAN], ".4f"),
                "L1 norm": _number(method["l1_norm"][-1][MEDIAN], ".4g"),
                "of g": _number(level["l1_norm"][MEDIAN], ".4g"),
            }
            for level in record.numbers["levels"]
            for method in level["methods"]
        ]
        title = f"F: {with_instance(record, record.setting['nonlinearity'], records)}"
        text = entry.text["section"].format(**record.setting)
        yield section(title, rows, words=3, text=text)


def solver_name(method: Numbers) -> str:
    """Return the name of a solver of Figure 4, with its λ if it has one."""
    damping = method["damping"]
    return f"{method['name']}, λ = {damping}" if damping is not None else str(method["name"])


def _number(value: float | None, digits: str) -> str:
    return DASH if value is None else format(value, digits)
