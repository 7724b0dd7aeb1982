"""The claims as a table: what is compared, the difference, and the verdict."""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from phantomgrad_suite.report.baselines import read_baselines
from phantomgrad_suite.report.catalogue import CLAIMS
from phantomgrad_suite.report.claims.claim import Family, RunsClaim, read_claims
from phantomgrad_suite.report.claims.evidence import Sources
from phantomgrad_suite.report.claims.inference import Verdict, corrected, decide
from phantomgrad_suite.report.document import Section, Table, section
from phantomgrad_suite.runs.archive import Archive

PAPER = "the paper"
"""The source of the paper's claims."""
_USUAL = 0.05  # the level that titles leave out


@dataclass(frozen=True)
class Judgement:
    """All claims of a folder of results, a line each, and the records that they were tested with.

    The columns are ``family``, ``title``, ``source`` and ``rank`` (primary or secondary), ``claim``
    and its ``evidence``, ``outcome`` after the correction, and ``verdict``.
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
    def contradicted(self) -> str:
        """The sentence that names what our runs contradict, under the titles of families."""
        lines = self.claims[self.claims["verdict"] == Verdict.CONTRADICTED]
        titles = Counter(line.family.title for line in lines.itertuples())
        found = [f"{title} ({count})" for title, count in titles.items()]
        if not found:
            return "None is contradicted."
        return f"Contradicted, of all claims here, under: {'; '.join(found)}."


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
        outcomes = [evidence.outcome for evidence in found]
        if rank == "primary":
            tests = [i for i, claim in enumerate(claims) if isinstance(claim, RunsClaim)]
            for i, outcome in zip(tests, corrected([outcomes[i] for i in tests]), strict=True):
                outcomes[i] = outcome
        level = f"level {family.level:g}" if family.level != _USUAL else ""
        parts = [family.title, rank if rank == "secondary" else "", level]
        about = {"family": family, "title": ", ".join(filter(None, parts)), "rank": rank}
        for claim, evidence, outcome in zip(claims, found, outcomes, strict=True):
            yield {
                **about,
                **{"source": family.source, "claim": claim, "evidence": evidence},
                "outcome": outcome,
                "verdict": decide(outcome, family.level) if outcome else evidence.verdict,
            }


def table_of_claims(judgement: Judgement, page: Path | None = None) -> Table:
    """Return all claims as a table.

    The first section counts verdicts and says what is contradicted, the second has all claims.
    Links are relative to ``page``, by default the folder of results.
    """
    results, claims, sources = judgement.results, judgement.claims, judgement.sources

    def linked(verdict: str, place: Path | None) -> str:
        if place is None or not place.exists():
            return verdict
        return f"[{verdict}]({Path(os.path.relpath(place, page or results)).as_posix()})"

    rows = [_cells(line) for line in claims.itertuples()]
    for row, place in zip(rows, map(sources.place, claims["claim"]), strict=True):
        row["Verdict"] = linked(row["Verdict"], place)
    notes = dict.fromkeys(f"{f.title}: {f.note}" for f in claims["family"] if f.note)
    every = section("", rows, 3, blocks=[*claims["title"]], notes=[*CLAIMS.notes, *notes])
    first = Section(text=f"{judgement.sentence} {judgement.contradicted}")
    return Table(CLAIMS, (first, every))


def _counted(verdicts: pd.Series) -> str:
    numbers = [((verdicts == verdict).sum(), verdict) for verdict in Verdict]
    return ", ".join(f"{n} {v if n == 1 else v.plural}" for n, v in numbers if n)


def _cells(line: Any) -> dict[str, str]:
    claim, evidence, outcome = line.claim, line.evidence, line.outcome
    p = "" if outcome is None else f"{outcome.p:.3f}" if outcome.p >= 0.001 else "< 0.001"
    known = outcome is not None and outcome.power == outcome.power  # not NaN
    return {
        "Claim": claim.claim,
        "In the paper": f"“{claim.words}” ({claim.place})" if claim.words else claim.place,
        "Verdict": line.verdict + (f" ({evidence.reason})" if evidence.reason else ""),
        "Paper": claim.paper,
        "Ours": evidence.ours,
        "Difference": evidence.difference,
        "95 % interval": evidence.interval,
        "n": evidence.n,
        "p": p,
        "Power": f"{outcome.power:.2f}" if known else "",
    }
