"""The claims as a table: what is compared, the difference, and the verdict."""

import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

from phantomgrad_suite.report.baselines import read_baselines
from phantomgrad_suite.report.catalogue import CLAIMS, entry_of
from phantomgrad_suite.report.claims.claim import Claim, Family, RunsClaim, read_claims
from phantomgrad_suite.report.claims.evidence import Evidence, signed
from phantomgrad_suite.report.claims.inference import Outcome
from phantomgrad_suite.report.claims.sources import Sources
from phantomgrad_suite.report.claims.verdicts import Finding, Verdict, corrected, decide
from phantomgrad_suite.report.inputs import read_paper, read_published
from phantomgrad_suite.report.table import Block, Cell, Cells, Row, Section, State, Table
from phantomgrad_suite.runs.archive import Archive
from phantomgrad_suite.runs.metrics import metric_of

PAPER = "the paper"
"""The source of the paper's claims."""
_USUAL = 0.05  # the level that titles leave out


class Judged(NamedTuple):
    """A claim with its evidence and verdict."""

    claim: Claim
    evidence: Evidence
    finding: Finding


class Part(NamedTuple):
    """The judged primary, or secondary, claims of a family."""

    family: Family
    rank: str
    claims: list[Judged]


class Judgement(NamedTuple):
    """All claims of a folder of results, and the records that they were tested with."""

    results: Path
    parts: list[Part]
    sources: Sources

    @property
    def sentence(self) -> str:
        """How many of the paper's primary claims have which verdict."""
        verdicts = [
            judged.finding.verdict
            for part in self.parts
            if part.family.source == PAPER and part.rank == "primary"
            for judged in part.claims
        ]
        return f"Of the paper's {len(verdicts)} primary claims, {_counted(verdicts)}."


def judge(results: Path, published: Archive, own: Archive | None = None) -> Judgement | None:
    """Test the claims of ``results/claims.yaml`` with ``published`` records, or with your ``own``.

    Without this file there are no claims.

    Raises:
        UserError: the file, or a record that it needs, cannot be used.
    """
    if not (results / "claims.yaml").is_file():
        return None
    sources = Sources(own or published, read_baselines(published, own))
    margin, families = read_claims(results / "claims.yaml")
    parts = [part for family in families for part in _parts(family, sources, margin)]
    return Judgement(results, parts, sources)


def table_of_claims(judgement: Judgement, page: Path | None = None) -> Table:
    """Return all claims as a table.

    The first section counts verdicts and says what is contradicted, the second has all claims.
    Links are relative to ``page``, by default the folder of results.
    """
    results, parts, sources = judgement

    def link(place: Path | None) -> str:
        known = place is not None and place.exists()
        return Path(os.path.relpath(place, page or results)).as_posix() if place and known else ""

    blocks = [
        Block(
            tuple(Row(_cells(x, link(sources.place(x.claim)))) for x in part.claims), _title(part)
        )
        for part in parts
    ]
    log = results / "published_curves.csv"
    is_published = sources.archive.folder == results / "records"
    if is_published and (logs := [Row(cells) for cells in _logs(log, link(log))]):
        blocks.append(Block(tuple(logs), "The paper's numbers in its authors' log"))
    families = [part.family for part in parts if part.family.note]
    notes = dict.fromkeys(f"{family.title}: {family.note}" for family in families)
    section = Section.of("", blocks, 3, notes=[*CLAIMS.notes, *notes])
    first = Section(text=f"{judgement.sentence} {_contradicted(parts)}")
    return Table(CLAIMS, State.MADE, counts(parts), (first, section))


def _parts(family: Family, sources: Sources, margin: float) -> Iterator[Part]:
    """Yield the primary claims of a family, corrected for their number, then the secondary ones."""
    for rank, claims in (("primary", family.primary), ("secondary", family.secondary)):
        found = [sources.evidence(claim, margin, family.level) for claim in claims]
        results = [evidence.result for evidence in found]
        if rank == "primary":
            tests = [i for i, claim in enumerate(claims) if isinstance(claim, RunsClaim)]
            for i, result in zip(tests, corrected([results[i] for i in tests]), strict=True):
                results[i] = result
        findings = [decide(result, family.level) for result in results]
        if claims:
            yield Part(family, rank, list(map(Judged, claims, found, findings)))


def _title(part: Part) -> str:
    family = part.family
    level = f"level {family.level:g}" if family.level != _USUAL else ""
    rank = "secondary" if part.rank == "secondary" else ""
    return ", ".join(filter(None, (family.title, rank, level)))


def _contradicted(parts: Sequence[Part]) -> str:
    """Return the sentence that names what our runs contradict."""
    found = [
        f"{judged.claim.claim} ({part.family.title}{', secondary' * (part.rank == 'secondary')})"
        for part in parts
        for judged in part.claims
        if judged.finding.verdict is Verdict.CONTRADICTED
    ]
    return f"Contradicted: {'; '.join(found)}." if found else "No claim is contradicted."


def counts(parts: Sequence[Part]) -> str:
    """Return the numbers of verdicts by whose claims they are, primary and secondary apart."""
    verdicts: dict[str, dict[str, list[Verdict]]] = {}
    for part in parts:
        ranks = verdicts.setdefault(part.family.source, {})
        ranks.setdefault(part.rank, []).extend(x.finding.verdict for x in part.claims)
    return "; ".join(
        f"{source}, {rank}: {_counted(found)}"
        for source, ranks in verdicts.items()
        for rank, found in sorted(ranks.items())
    )


def _counted(verdicts: Sequence[Verdict]) -> str:
    numbers = [(verdicts.count(verdict), verdict) for verdict in Verdict]
    return ", ".join(f"{n} {v if n == 1 else v.plural}" for n, v in numbers if n)


def _cells(judged: Judged, link: str) -> Cells:
    claim, (result, shown, _), finding = judged
    power = result.power if isinstance(result, Outcome) else math.nan
    p = finding.p
    return {
        "Claim": claim.claim,
        "In the paper": f"“{claim.words}” ({claim.place})" if claim.words else claim.place,
        "Verdict": Cell(str(finding), link=link),
        "Paper": claim.paper,
        "Ours": shown.ours,
        "Difference": shown.difference,
        "95 % interval": shown.interval,
        "n": shown.n,
        "p": "" if p is None else f"{p:.3f}" if p >= 0.001 else "< 0.001",
        "Power": "" if math.isnan(power) else f"{power:.2f}",
    }


def _logs(log: Path, link: str) -> Iterator[Cells]:
    """Yield the paper's numbers of which ``log``, ``published_curves.csv``, holds the runs.

    Mean and sample deviation of the best epochs must be those printed, up to one in the last digit.
    """
    published = read_published(log)
    for number in read_paper():
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
            "Verdict": Cell(Verdict.HOLDS if agree else Verdict.CONTRADICTED, link=link),
            "Paper": number.text,
            "Ours": f"{fmean(best):.2f} ± {stdev(best):.2f}",
            "Difference": signed(fmean(best) - float(number.value)),
            "95 % interval": "",
            "n": str(len(best)),
            "p": "",
            "Power": "",
        }
