"""Figures 1 and 4 as tables: gradients in the synthetic setting, and under ill-conditioning."""

from collections import defaultdict
from collections.abc import Iterator

from phantomgrad_suite.report.catalogue import Entry
from phantomgrad_suite.report.document import DASH, Section, section
from phantomgrad_suite.report.studies.parts import Numbers, Records, with_instance
from phantomgrad_suite.runs.records import StudyRecord

MEDIAN = 2  # of the quantiles of Figure 4


def synthetic(entry: Entry, records: Records) -> Iterator[Section]:
    """Yield the mean cosines and norm ratios of all estimates, a section for each F."""
    for record in by_nonlinearity(records):
        rows: dict[int, dict[str, str]] = defaultdict(dict)
        norms: dict[int, dict[str, str]] = defaultdict(dict)
        for (form, damping), estimates in by_form(record).items():
            for estimate in estimates:
                k, name = estimate["steps"], f"{form}, λ = {damping}"
                states, cosines = (estimate[which]["mean"] for which in ("states", "rows"))
                rows[k][name] = f"{states:.4f} ({cosines:.4f})"
                norms[k][f"norm, {name}"] = f"{estimate['norm_ratio']['mean']:.3f}"
        exact = record.numbers["exact"]
        text = entry.text["section"].format(
            **record.setting,
            reduced=f" Reduced: {', '.join(record.changes)}." if record.changes else "",
            agreement=exact["agreement"]["percentiles"][0],
            residual=exact["residual"]["percentiles"][-1],
        )
        title = f"F: {with_instance(record, record.setting['nonlinearity'], records)}"
        cells = [{"k": str(k), **rows[k], **norms[k]} for k in rows]
        yield section(title, cells, words=0, text=text)


def by_nonlinearity(records: Records) -> list[StudyRecord]:
    """Return the records by their F, that of the paper first, of each F those of most samples."""

    def order(record: StudyRecord) -> tuple[bool, str, int]:
        form = record.setting["nonlinearity"]
        return form != "tanh", form, -record.setting["samples"]

    most = {order(record)[:2]: order(record) for record in sorted(records, key=order, reverse=True)}
    found = [record for record in records if most[order(record)[:2]] == order(record)]
    return sorted(found, key=order)


def by_form(record: StudyRecord) -> dict[tuple[str, float], list[Numbers]]:
    """Return the estimates by k, for each form and λ."""
    found: dict[tuple[str, float], list[Numbers]] = defaultdict(list)
    for estimate in sorted(record.numbers["estimates"], key=lambda e: (e["form"], e["damping"])):
        found[estimate["form"], estimate["damping"]].append(estimate)
    return found


def conditioning(entry: Entry, records: Records) -> Iterator[Section]:
    """Yield the medians after the last iteration, a section for each F."""
    formats = {
        "Objective": ("objective", ".2e"),
        "Relative error": ("relative_error", ".2e"),
        "Cosine": ("cosine", ".4f"),
        "L1 norm": ("l1_norm", ".4g"),
    }
    for record in records:
        rows = [
            {
                "L": f"{level['lipschitz']}",
                "κ": f"{level['condition']:.3g}",
                "Method": solver_name(method),
                **{n: _number(method[q][-1][MEDIAN], how) for n, (q, how) in formats.items()},
                "of g": _number(level["l1_norm"][MEDIAN], ".4g"),
            }
            for level in record.numbers["levels"]
            for method in level["methods"]
        ]
        title = f"F: {with_instance(record, record.setting['nonlinearity'], records)}"
        yield section(title, rows, words=3, text=entry.text["section"].format(**record.setting))


def solver_name(method: Numbers) -> str:
    """Return the name of a solver of Figure 4, with its λ if it has one."""
    damping = method["damping"]
    return f"{method['name']}, λ = {damping}" if damping is not None else str(method["name"])


def _number(value: float | None, digits: str) -> str:
    return DASH if value is None else format(value, digits)
