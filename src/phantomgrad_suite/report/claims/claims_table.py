"""The claims as a table: what is compared, the difference, and the verdict."""

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pandas as pd

from phantomgrad_suite.report.baselines import read_baselines
from phantomgrad_suite.report.catalogue import CLAIMS, entry_of
from phantomgrad_suite.report.claims.claim import Family, RunsClaim, read_claims
from phantomgrad_suite.report.claims.evidence import Sources, signed
from phantomgrad_suite.report.claims.inference import Outcome, Verdict, corrected, decide
from phantomgrad_suite.report.document import Section, State, Table, section
from phantomgrad_suite.report.inputs import read_paper, read_published
from phantomgrad_suite.runs.archive import Archive
from phantomgrad_suite.runs.metrics import metric_of

PAPER = "the paper"
"""The source of the paper's claims."""
_USUAL = 0.05  # the level that titles leave out


@dataclass(frozen=True)
class Judgement:
    """All claims of a folder of results, a line each, and the records that they were tested with.

    The columns are ``family``, ``title``, ``source`` and ``rank`` (primary or secondary), ``claim``
    and ``evidence``, ``finding`` and its ``verdict``.
    """

    results: Path
    claims: pd.DataFrame
    sources: Sources

    @property
    def of_paper(self) -> pd.DataFrame:
        """The paper's primary claims."""
        return self.claims.query("source == @PAPER and rank == 'primary'")

    @property
    def sentence(self) -> str:
        """How many of the paper's primary claims have which verdict."""
        verdicts = self.of_paper["verdict"]
        return f"Of the paper's {len(verdicts)} primary claims, {_counted(verdicts)}."

    @property
    def counts(self) -> str:
        """The numbers of verdicts by whose claims they are, primary and secondary apart."""
        groups = self.claims.groupby(["source", "rank"], sort=False)["verdict"]
        found = {key: _counted(verdicts) for key, verdicts in groups}
        order = [*self.claims["source"].unique()]
        keys = sorted(found, key=lambda key: (order.index(key[0]), key[1]))
        return "; ".join(f"{source}, {rank}: {found[source, rank]}" for source, rank in keys)

    @property
    def contradicted(self) -> str:
        """The sentence that names what our runs contradict."""
        lines = self.claims[self.claims["verdict"] == Verdict.CONTRADICTED]
        found = [
            f"{line.claim.claim} ({line.family.title}{', secondary' * (line.rank == 'secondary')})"
            for line in lines.itertuples()
        ]
        return f"Contradicted: {'; '.join(found)}." if found else "No claim is contradicted."


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
    lines = [line for family in families for line in _judged(family, sources, margin)]
    return Judgement(results, pd.DataFrame(lines), sources)


def _judged(family: Family, sources: Sources, margin: float) -> Iterator[dict[str, Any]]:
    """Yield the primary claims of a family, corrected for their number, then the secondary ones."""
    for rank, claims in (("primary", family.primary), ("secondary", family.secondary)):
        found = [sources.evidence(claim, margin, family.level) for claim in claims]
        results = [evidence.result for evidence in found]
        if rank == "primary":
            tests = [i for i, claim in enumerate(claims) if isinstance(claim, RunsClaim)]
            for i, result in zip(tests, corrected([results[i] for i in tests]), strict=True):
                results[i] = result
        level = f"level {family.level:g}" if family.level != _USUAL else ""
        parts = [family.title, rank if rank == "secondary" else "", level]
        about = {"family": family, "title": ", ".join(filter(None, parts)), "rank": rank}
        for claim, evidence, result in zip(claims, found, results, strict=True):
            finding = decide(result, family.level)
            yield {
                **about,
                "source": family.source,
                **{"claim": claim, "evidence": evidence},
                **{"finding": finding, "verdict": finding.verdict},
            }


def table_of_claims(judgement: Judgement, page: Path | None = None) -> Table:
    """Return all claims as a table.

    The first section counts verdicts and says what is contradicted, the second has all claims.
    Links are relative to ``page``, by default the folder of results.
    """
    results, claims, sources = judgement.results, judgement.claims, judgement.sources

    def link(place: Path | None) -> str:
        known = place is not None and place.exists()
        return Path(os.path.relpath(place, page or results)).as_posix() if place and known else ""

    rows = [_cells(line, link(sources.place(line.claim))) for line in claims.itertuples()]
    titles = [*claims["title"]]
    if sources.archive.folder == results / "records":  # the published ones
        log = results / "published_curves.csv"
        rows += _logs(log, link(log))
        titles += ["The paper's numbers in its authors' log"] * (len(rows) - len(titles))
    notes = dict.fromkeys(f"{f.title}: {f.note}" for f in claims["family"] if f.note)
    every = section("", rows, 3, blocks=titles, notes=[*CLAIMS.notes, *notes])
    first = Section(text=f"{judgement.sentence} {judgement.contradicted}")
    return Table(CLAIMS, State.MADE, judgement.counts, (first, every))


def _counted(verdicts: pd.Series) -> str:
    numbers = [((verdicts == verdict).sum(), verdict) for verdict in Verdict]
    return ", ".join(f"{n} {v if n == 1 else v.plural}" for n, v in numbers if n)


def _cells(line: Any, link: str) -> dict[str, str]:
    claim, (result, shown, _), finding = line.claim, line.evidence, line.finding
    power = result.power if isinstance(result, Outcome) else math.nan
    p = finding.p
    return {
        "Claim": claim.claim,
        "In the paper": f"“{claim.words}” ({claim.place})" if claim.words else claim.place,
        "Verdict": _linked(str(finding), link),
        "Paper": claim.paper,
        "Ours": shown.ours,
        "Difference": shown.difference,
        "95 % interval": shown.interval,
        "n": shown.n,
        "p": "" if p is None else f"{p:.3f}" if p >= 0.001 else "< 0.001",
        "Power": "" if math.isnan(power) else f"{power:.2f}",
    }


def _linked(text: str, link: str) -> str:
    return f"[{text}]({link})" if link else text


def _logs(log: Path, link: str) -> Iterator[dict[str, str]]:
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
            "Verdict": _linked(Verdict.HOLDS if agree else Verdict.CONTRADICTED, link),
            "Paper": number.text,
            "Ours": f"{fmean(best):.2f} ± {stdev(best):.2f}",
            "Difference": signed(fmean(best) - float(number.value)),
            "95 % interval": "",
            "n": str(len(best)),
            "p": "",
            "Power": "",
        }
