"""The results of a run, plain data, as Markdown."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from phantomgrad_suite.bench.contest import MEMORY, OURS
from phantomgrad_suite.runs.formats import hardware

_TEXT = """# Ours against torchdeq {version}

{hardware}, torch {torch}, {started}.
Medians ({clock}). `times less` is theirs over ours, `paired` the median of that ratio within a
round. `outside f` is the time that a solver itself takes, with its share of our solves; a step is
forward and backward. `step in f` is a step without that time of ours, so its ratio is what would
be reached if our solvers cost nothing. `torchdeq on our f` gets a map whose constants are computed
once per segment, as ours is. Written by `make bench`; every sample is in `{name}.json`.

{cases}
"""
_HEAD = ("case", "quantity", "ours", "against", "theirs", "times less", "paired")


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
    rows: list[Sequence[str]] = [_HEAD]
    for case in cases:
        ours = [*case["contenders"][OURS]["seconds"], MEMORY]
        pairs = [(q, rival) for rival, ratios in case["times_less"].items() for q in ratios]
        pairs += [(q, None) for q in ours if q not in dict(pairs)]
        for i, (quantity, rival) in enumerate(pairs):
            rows.append(("" if i else case["case"], *_row(case, quantity, rival)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, ["-" * width for width in widths])
    return "\n".join(f"| {' | '.join(map(str.ljust, row, widths))} |" for row in rows)


def _row(case: Mapping[str, Any], quantity: str, rival: str | None) -> tuple[str, ...]:
    ours = _amount(case["contenders"][OURS], quantity)
    if rival is None:
        return quantity, ours, "", "", "", ""
    theirs, ratios = case["contenders"][rival], case["times_less"][rival][quantity]
    paired = "" if quantity == MEMORY else f"{ratios['median_of_paired_ratios']:.2f}"
    less = f"{ratios['ratio_of_medians']:.2f}"
    return quantity, ours, rival, _amount(theirs, quantity), less, paired


def _amount(contender: Mapping[str, Any], quantity: str) -> str:
    if quantity == MEMORY:
        return f"{contender['peak_bytes'] / 2**20:.1f} MiB"
    medians = {q: found["median"] for q, found in contender["seconds"].items()}
    share = ""
    if quantity == "outside f" and "solves" in medians:
        share = f", {medians['outside f'] / medians['solves']:.1%}"
    return f"{medians[quantity] * 1e3:.2f} ms{share}"
