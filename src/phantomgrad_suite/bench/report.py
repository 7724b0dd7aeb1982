"""The results of a run, plain data, as Markdown."""

from collections.abc import Iterable, Mapping
from typing import Any

from phantomgrad_suite.bench.contest import OURS
from phantomgrad_suite.report.markdown import grid
from phantomgrad_suite.report.table import Section
from phantomgrad_suite.runs.formats import hardware

_TEXT = """# Ours against torchdeq {version}

{hardware}, torch {torch}, {started}.
Medians ({clock}). `times less` is theirs over ours. `outside f` is the time that a solver takes
itself. A step is forward and backward; `step in f` is a step without the time outside f of ours, so
its ratio is what would be reached if our solvers cost nothing. `torchdeq on our f` gets a map whose
constants are computed once per segment, as ours is. `make bench` wrote this, and every sample to
`{name}.json`.

{cases}
"""


def as_markdown(data: Mapping[str, Any], name: str) -> str:
    """Return the report of a run, whose data are in ``<name>.json``."""
    environment = data["environment"]
    return _TEXT.format(
        version=data["torchdeq"],
        hardware=hardware(environment, on_gpu=data["device"].startswith("cuda")),
        torch=environment["versions"]["torch"],
        started=data["started"],
        clock=data["clock"],
        name=name,
        cases=case_table(data["cases"]),
    )


def case_table(cases: Iterable[Mapping[str, Any]]) -> str:
    """Return a table with rows for each quantity and each other contender."""
    rows = []
    for case in cases:
        amounts = {name: _amounts(found) for name, found in case["contenders"].items()}
        ours = amounts.pop(OURS)
        rows += [
            {
                "Case": case["case"],
                "Quantity": quantity,
                "Against": rival,
                "Ours": f"{ours[quantity]:.2f}",
                "Theirs": f"{amount:.2f}",
                "Times less": f"{amount / ours[quantity]:.2f}" if ours[quantity] else "",
            }
            for rival, theirs in amounts.items()
            for quantity, amount in theirs.items()
        ]
    section = Section.of("", rows, words=3)
    return "\n\n".join(grid(section, block) for block in section.blocks)


def _amounts(contender: Mapping[str, Any]) -> dict[str, float]:
    times = {f"{q} (ms)": 1e3 * found["median"] for q, found in contender["seconds"].items()}
    return {**times, "peak memory (MiB)": contender["peak_bytes"] / 2**20}
