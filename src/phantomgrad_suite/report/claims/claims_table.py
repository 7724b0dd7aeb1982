"""The claims as a table: what is compared, the difference, and the verdict."""

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

from phantomgrad_suite.report.catalogue import CLAIMS, entry_of
from phantomgrad_suite.report.claims.claim import Claim, Family, read_claims
from phantomgrad_suite.report.claims.quantities import QUANTITIES, is_logarithm, metric_of_run
from phantomgrad_suite.report.claims.verdicts import Comparison, Difference, Verdict, judge
from phantomgrad_suite.report.inputs import read_all, read_paper, read_published
from phantomgrad_suite.report.table import Block, Cell, Cells, Row, Section, State, Table
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.identity import split_row
from phantomgrad_suite.runs.metrics import metric_of
from phantomgrad_suite.runs.records import Record, read_record

_INSTANCE = re.compile(r"seed(\d+)(?:-fold(\d+))?")  # of a run that does not differ from its row

Runs = Mapping[tuple[int, int], Record]
"""The runs of a row by seed and fold."""
_RunsOf = Callable[[str], Runs]


class Tested(NamedTuple):
    """A claim, the means of a and b over the pairs of runs, and what is compared."""

    claim: Claim
    means: str
    comparison: Comparison


def table_of_claims(
    results: Path, records: Path | None = None, page: Path | None = None
) -> Table | None:
    """Return the claims of ``results/claims.yaml``, tested with the records of a folder.

    ``records`` is the folder of records, by default that of ``results``; links are relative to
    ``page``, by default ``results``. Without ``claims.yaml`` there is no table.

    Raises:
        UserError: the file, or a record that it needs, cannot be used.
    """
    if not (results / "claims.yaml").is_file():
        return None

    @cache
    def runs_of(row: str) -> Runs:
        found = read_all(records or results / "records", row, read_record)
        matches = [(_INSTANCE.fullmatch(run.instance), run) for run in found]
        return {(int(m[1]), int(m[2] or 0)): run for m, run in matches if m}

    margin, families = read_claims(results / "claims.yaml")

    def link(place: Path) -> str:
        return Path(os.path.relpath(place, page or results)).as_posix() if place.exists() else ""

    def runs_link(claim: Claim) -> str:
        scale, row = split_row(claim.a[0])
        return link((records or results / "records") / scale / row.split("/")[0])

    blocks = [_block(family, runs_of, margin, runs_link) for family in families]
    verdicts = [row.text("Verdict") for block in blocks for row in block.rows]
    log = results / "published_curves.csv"
    if not records and (logs := [Row(cells) for cells in _logs(log, link(log))]):
        blocks.append(Block(tuple(logs), "The paper's numbers in its authors' log"))
    section = Section.of("", blocks, 3, notes=CLAIMS.notes)
    counts = [f"{n} {verdict.plural}" for verdict in Verdict if (n := verdicts.count(verdict))]
    state = State.PARTLY if Verdict.OPEN in verdicts else State.MADE
    return Table(CLAIMS, state, ", ".join(counts), (section,))


def _block(
    family: Family, runs_of: _RunsOf, margin: float, link_of: Callable[[Claim], str]
) -> Block:
    tested = [_tested(claim, runs_of, margin) for claim in family.claims]
    verdicts: Sequence[tuple[float | None, Verdict]]
    verdicts, title = judge([each.comparison for each in tested]), family.title
    if any(each.comparison.difference.n < each.claim.pairs for each in tested):
        by_size = sorted(family.claims, key=lambda claim: claim.instances)
        wanted = {row: claim.instances for claim in by_size for row in claim.rows}
        there = sum(min(len(runs_of(row)), n) for row, n in wanted.items())
        title += f" ({there} of {sum(wanted.values())} runs)"
        verdicts = [(None, Verdict.OPEN)] * len(tested)
    found = zip(tested, verdicts, strict=True)
    rows = [Row(_cells(each, p, Cell(v, link=link_of(each.claim)))) for each, (p, v) in found]
    return Block(tuple(rows), title)


def _tested(claim: Claim, runs_of: _RunsOf, margin: float) -> Tested:
    """Compare the pairs of runs that are there: of the first seeds that both rows have."""
    quantity = QUANTITIES[claim.quantity]
    pairs: list[tuple[Record, Record]] = []
    for a, b in zip(claim.a, claim.b or claim.a, strict=True):
        common = sorted(runs_of(a).keys() & runs_of(b).keys())
        seeds = sorted({seed for seed, _ in common})[: claim.seeds]
        pairs += [(runs_of(a)[key], runs_of(b)[key]) for key in common if key[0] in seeds]
    pairs = [pair for pair in pairs if quantity.can_compare(*pair)]
    values = [_values(claim, a, b) for a, b in pairs]
    difference = Difference.of([a - b for a, b in values], claim.folds)
    first = pairs[0][0] if pairs else None
    means = [fmean(side) for side in zip(*values, strict=True)][: 2 if claim.b else 1]
    if first and is_logarithm(first, quantity):
        means = [math.exp(mean / 100) for mean in means]
    higher = first is None or metric_of_run(first).higher_is_better
    bound = margin if quantity.has_margin else math.nan
    texts = " against ".join(f"{mean:#.4g}" for mean in means)
    return Tested(claim, texts, Comparison(claim.test, difference, bound, higher))


def _values(claim: Claim, a: Record, b: Record) -> tuple[float, float]:
    quantity = QUANTITIES[claim.quantity]
    try:
        return quantity.of(a, b), quantity.of(b, a) if claim.b else 0.0
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        runs = " or ".join(sorted({f"{run.row}/{run.instance}" for run in (a, b)}))
        raise UserError(f"{runs} lacks what {claim.quantity} needs ({error!r})") from error


def _cells(tested: Tested, p: float | None, verdict: Cell) -> Cells:
    claim, difference = tested.claim, tested.comparison.difference
    decimals = 3 if math.isnan(tested.comparison.margin) else 2
    interval = " to ".join(_signed(end, decimals) for end in difference.interval())
    complete = difference.n == claim.pairs
    return {
        "Claim": claim.claim,
        "In the paper": f"“{claim.words}” ({claim.place})" if claim.words else claim.place,
        "Verdict": verdict,
        "Paper": claim.paper,
        "Ours": tested.means,
        "Difference": _signed(difference.mean, decimals),
        "95 % interval": interval if math.isfinite(difference.error) else "",
        "Pairs": str(claim.pairs) if complete else f"{difference.n} of {claim.pairs}",
        "p": "" if p is None else f"{p:.3f}" if p >= 0.001 else "< 0.001",
    }


def _signed(value: float, decimals: int) -> str:
    return f"{value:+.{decimals}f}" if math.isfinite(value) else ""


def _logs(log: Path, link: str) -> Iterator[Cells]:
    """Yield the paper's numbers of which ``log``, ``published_curves.csv``, holds the runs.

    Mean and sample deviation of the best epochs must be those printed, up to one in the last digit.
    """
    published = read_published(log)
    for number in read_paper(log.with_name("paper.csv")):
        metric = metric_of(number.metric)
        runs = published.get(number.row, {}).get(metric.curve, ())
        best = [max(run) * metric.scale for run in runs]
        texts = ", ".join(f"{value:.2f}" for value in best)
        if len(best) < 2 or not number.spread:
            continue
        ours = {number.value: fmean(best), number.spread: stdev(best)}
        units = {printed: 10.0 ** -len(printed.partition(".")[2]) for printed in ours}
        agree = all(abs(v - float(printed)) < units[printed] for printed, v in ours.items())
        yield {
            "Claim": f"{number.model}, {number.method}, best epochs: {texts}",
            "In the paper": entry_of(number.table).label,
            "Verdict": Cell(Verdict.HOLDS if agree else Verdict.FAILS, link=link),
            "Paper": number.text,
            "Ours": f"{fmean(best):.2f} ± {stdev(best):.2f}",
            "Difference": _signed(fmean(best) - float(number.value), 2),
            "95 % interval": "",
            "Pairs": f"{len(best)} runs",
            "p": "",
        }
