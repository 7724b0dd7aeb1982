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
from phantomgrad_suite.report.claims.verdicts import (
    Comparison,
    Difference,
    Finding,
    Verdict,
    judge,
)
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
    in_percent: bool  # the difference is 100 times that of logarithms
    diverged: int  # pairs with a run that has no result: the mean of the others is no evidence


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

    blocks, verdicts = [], dict[str, list[Verdict]]()
    for family in families:
        tested = [_tested(claim, runs_of, margin) for claim in family.claims]
        title, findings = _judged(family, tested, runs_of)
        links = [runs_link(each.claim) for each in tested]
        rows = [Row(_cells(*each)) for each in zip(tested, findings, links, strict=True)]
        blocks.append(Block(tuple(rows), title))
        verdicts.setdefault(family.source, []).extend(found.verdict for found in findings)
    log = results / "published_curves.csv"
    if not records and (logs := [Row(cells) for cells in _logs(log, link(log))]):
        blocks.append(Block(tuple(logs), "The paper's numbers in its authors' log"))
    section = Section.of("", blocks, 3, notes=CLAIMS.notes)
    is_open = any(Verdict.OPEN in found for found in verdicts.values())
    counts = "; ".join(f"{source}: {_counted(found)}" for source, found in verdicts.items())
    return Table(CLAIMS, State.PARTLY if is_open else State.MADE, counts, (section,))


def _counted(verdicts: Sequence[Verdict]) -> str:
    counts = [(verdicts.count(verdict), verdict.plural) for verdict in Verdict]
    return ", ".join(f"{n} {words}" for n, words in counts if n)


def _judged(
    family: Family, tested: Sequence[Tested], runs_of: _RunsOf
) -> tuple[str, Sequence[Finding]]:
    """Return the title of a family and what its runs say: nothing yet if runs are missing."""
    if all(each.comparison.difference.n == each.claim.pairs for each in tested):
        findings = judge([each.comparison for each in tested])
        return family.title, list(map(_settled, tested, findings))
    by_size = sorted(family.claims, key=lambda claim: claim.instances)
    wanted = {row: claim.instances for claim in by_size for row in claim.rows}
    there = sum(min(len(runs_of(row)), n) for row, n in wanted.items())
    title = f"{family.title} ({there} of {sum(wanted.values())} runs)"
    return title, [Finding(None, Verdict.OPEN)] * len(tested)


def _settled(tested: Tested, finding: Finding) -> Finding:
    """Return what is found on a claim: nothing if some of its runs diverged."""
    if not tested.diverged:
        return finding
    pairs = tested.claim.pairs
    return Finding(None, Verdict.UNSETTLED, f"a run diverged in {tested.diverged} of {pairs} pairs")


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
    in_percent = first is not None and is_logarithm(first, quantity)
    if in_percent:
        means = [math.exp(mean / 100) for mean in means]
    higher = first is None or metric_of_run(first).higher_is_better
    bound = margin if quantity.has_margin else math.nan
    texts = " against ".join("—" if math.isnan(mean) else f"{mean:#.4g}" for mean in means)
    comparison = Comparison(claim.test, difference, bound, higher)
    diverged = sum(bool(a.diverged or b.diverged) for a, b in pairs)
    return Tested(claim, texts, comparison, in_percent, diverged)


def _values(claim: Claim, a: Record, b: Record) -> tuple[float, float]:
    quantity = QUANTITIES[claim.quantity]
    if a.diverged or b.diverged:
        return math.nan, math.nan
    try:
        return quantity.of(a, b), quantity.of(b, a) if claim.b else 0.0
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        runs = " or ".join(sorted({f"{run.row}/{run.instance}" for run in (a, b)}))
        raise UserError(f"{runs} lacks what {claim.quantity} needs ({error!r})") from error


def _cells(tested: Tested, finding: Finding, link: str) -> Cells:
    claim, difference, p = tested.claim, tested.comparison.difference, finding.p
    complete = difference.n == claim.pairs
    reason = f" ({finding.reason})" if finding.reason else ""

    def text(value: float) -> str:
        if tested.in_percent:
            return _signed(100 * math.expm1(value / 100), 1)
        return _signed(value, 3 if math.isnan(tested.comparison.margin) else 2)

    unit = " %" if tested.in_percent and text(difference.mean) else ""
    return {
        "Claim": claim.claim,
        "In the paper": f"“{claim.words}” ({claim.place})" if claim.words else claim.place,
        "Verdict": Cell(finding.verdict + reason, link=link),
        "Paper": claim.paper,
        "Ours": tested.means,
        "Difference": text(difference.mean) + unit,
        "95 % interval": " to ".join(map(text, difference.interval())) + unit
        if math.isfinite(difference.error)
        else "",
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
