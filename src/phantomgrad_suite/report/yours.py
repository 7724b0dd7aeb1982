"""Your numbers next to the published ones."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from phantomgrad_suite.report.experiments.lines import Line
from phantomgrad_suite.report.experiments.runs import short
from phantomgrad_suite.report.table import Row, Table
from phantomgrad_suite.runs.identity import difference

_RESULTS = ("Best", "Last", "Common (epoch)", "Selected")


class Agreement(NamedTuple):
    """How far your results agree with the published ones, and how the others differ."""

    things: str  # that were compared
    total: int
    differing: list[str]

    def __str__(self) -> str:
        if not self.total:
            return "Nothing is published to compare these with."
        others = f"; others: {'; '.join(dict.fromkeys(self.differing))}" if self.differing else ""
        return f"{self.total - len(self.differing)} of {self.total} {self.things}{others}."

    @classmethod
    def of_all(cls, parts: Sequence["Agreement"]) -> str:
        """Return how many of all results agree."""
        sums = []
        for things in dict.fromkeys(part.things for part in parts if part.total):
            same = [part for part in parts if part.things == things]
            total = sum(part.total for part in same)
            agree = total - sum(len(part.differing) for part in same)
            sums.append(f"{agree} of {total} {things}")
        return "; ".join(sums) or "nothing is published to compare them with"


def with_yours(published: Table, yours: Table) -> tuple[Table, Agreement]:
    """Return the published table with your results, and how far they agree."""
    found = list(_differences(published, yours))
    things = "claims have the published verdict" if yours.studies else "numbers agree"
    agreement = Agreement(things, len(found), [text for text in found if text])
    own = [section for section in yours.sections if section.columns]
    own = own if yours.studies else own[:1]
    known = {note for section in published.sections for note in section.notes}
    shown = []
    for section in own:
        notes = tuple(note for note in section.notes if note not in known)
        title = f"Yours: {section.title}".rstrip(": ")
        shown.append(replace(section, title=title, text="", notes=notes))
    shown[:1] = [replace(shown[0], text=str(agreement))]
    first = len(published.sections) if published.studies else 1
    sections = (*published.sections[:first], *shown, *published.sections[first:])
    return replace(published, sections=sections), agreement


def with_your_claims(published: Table, yours: Table) -> Table:
    """Return the published claims, then those of which you have pairs of runs, from yours."""
    first, section = yours.sections
    found = [(b, tuple(row for row in b.rows if str(row.cells["Ours"]))) for b in section.blocks]
    blocks = tuple(replace(block, rows=rows) for block, rows in found if rows)
    if not blocks:
        return published
    own = replace(section, title="Yours", text=first.text, blocks=blocks, notes=())
    return replace(published, sections=(*published.sections, own))


def _differences(published: Table, yours: Table) -> Iterator[str]:
    """Yield for each of your numbers and checks how it differs from the published one, or ""."""
    theirs = {_key(row): row for block in published.blocks for row, _ in block.experiments}
    for block in yours.blocks:
        for row, line in block.experiments:
            other = theirs.get(_key(row))
            if other and other.line:
                yield from _compared(row, line, other, other.line)
    holds = {(r.row, c.claim): c.holds for r in published.studies for c in r.checks}
    for record in yours.studies:
        for check in record.checks:
            if (key := (record.row, check.claim)) in holds:
                words = "holds" if check.holds else "does not hold"
                yield "" if check.holds == holds[key] else f"{record.row}: {check.claim} {words}"


def _compared(row: Row, line: Line, other: Row, published: Line) -> Iterator[str]:
    """Yield how each number of a row differs from the published one, or "".

    A number agrees within the published spread, and otherwise if both are printed alike, but never
    if it is one of other data or settings, or if other runs diverged. The best common epoch is
    compared only over as many runs: over fewer it flatters more.
    """
    unlike = _unlike(line, published)
    for heading in _RESULTS:
        mine, reference = row.number(heading), other.number(heading)
        if reference is None or (mine is None and not line.fate):
            continue
        if heading.startswith("Common") and row.text("n") != other.text("n"):
            continue
        if unlike or mine is None:
            yield f"{line.row}: {unlike or line.fate}"
            continue
        value, spread = reference
        near = abs(mine[0] - value) <= spread or row.text(heading) == other.text(heading)
        texts = f"{row.text(heading)}, published {other.text(heading)}"
        yield "" if near else f"{line.row} {heading} {texts}"


def _unlike(yours: Line, published: Line) -> str:
    """Return why your runs of a row do not repeat the published ones; empty if they do."""
    mine, other = yours.runs, published.runs
    if mine is None or other is None:
        return ""
    reasons = []
    if mine.data != other.data:
        reasons.append(f"data {short(mine.data)}, published {short(other.data)}")
    settings = dict.fromkeys(s for r in mine.all for s in difference(r.config, other.first.config))
    if settings or mine.first.config_hash != other.first.config_hash:
        reasons.append(f"other settings ({', '.join(settings) or 'configuration hash'})")
    both = {r.instance for r in mine.all} & {r.instance for r in other.all}
    lost = [{r.instance for r in runs.diverged} & both for runs in (mine, other)]
    if lost[0] != lost[1]:
        reasons.append(f"{len(lost[0])} diverged, published {len(lost[1])} of these")
    return "; ".join(reasons)


def _key(row: Row) -> tuple[str, str, str]:
    assert row.line is not None
    return row.line.row, row.line.dataset, row.line.variant
