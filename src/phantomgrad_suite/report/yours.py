"""Your numbers next to the published ones."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pandas as pd

from phantomgrad_suite.report.document import Table
from phantomgrad_suite.report.experiments import SCORES, metric_of_line, short
from phantomgrad_suite.report.results import score_text
from phantomgrad_suite.runs.identity import difference


def agreement(found: pd.DataFrame, *, details: bool = True) -> str:
    """Return how many results agree, and how others differ; ``found`` is of :func:`compared`."""
    counts = [
        f"{(part == '').sum()} of {len(part)} {things}"
        for things, part in found.groupby("things", sort=False)["difference"]
    ]
    others = "; ".join(filter(None, found["difference"].unique())) if details else ""
    text = "; ".join(counts) or "None of these rows is published, so there is nothing to compare"
    return f"{text}; others: {others}." if others else f"{text}."


def compared(published: Table, yours: Table) -> pd.DataFrame:
    """Return a line for each of your results that is published, too.

    ``things`` is what it is one of, ``difference`` how it differs, empty if it agrees.
    """
    of_studies = bool(yours.studies)
    found = (_checks if of_studies else _numbers)(published, yours)
    things = "claims have the published verdict" if of_studies else "numbers agree"
    lines = [(things, difference) for difference in found]
    return pd.DataFrame(lines, columns=["things", "difference"], dtype=object)


def with_yours(published: Table, yours: Table, text: str) -> Table:
    """Return the published table with your results, and a text on them."""
    known = {note for section in published.sections for note in section.notes}
    own = [section for section in yours.sections if len(section.frame)]
    shown = [
        replace(
            section,
            title=f"Yours: {section.title}".rstrip(": "),
            text="" if i else text,
            notes=tuple(note for note in section.notes if note not in known),
        )
        for i, section in enumerate(own if yours.studies else own[:1])
    ]
    first = len(published.sections) if yours.studies else 1
    return replace(
        published, sections=(*published.sections[:first], *shown, *published.sections[first:])
    )


def with_your_claims(published: Table, yours: Table) -> Table:
    """Return the published claims, then those of which you have pairs of runs, from yours."""
    first, every = yours.sections
    tested = every.frame[every.frame["Ours"] != "—"] if "Ours" in every.frame else every.frame[:0]
    if tested.empty:
        return published
    own = replace(every, title="Yours", text=first.text, frame=tested, notes=())
    return replace(published, sections=(*published.sections, own))


def _checks(published: Table, yours: Table) -> Iterator[str]:
    """Yield for each check of your studies how its verdict differs, or ""."""
    holds = {(r.row, c.claim): c.holds for r in published.studies for c in r.checks}
    for record in yours.studies:
        for check in record.checks:
            if (key := (record.row, check.claim)) in holds:
                words = "holds" if check.holds else "does not hold"
                yield "" if check.holds == holds[key] else f"{record.row}: {check.claim} {words}"


def _numbers(published: Table, yours: Table) -> Iterator[str]:
    """Yield for each of your numbers how it differs from the published one, or ""."""
    key = ["row", "dataset", "variant"]
    theirs = published.experiments.drop_duplicates(key, keep="last").set_index(key, drop=False)
    for line in yours.experiments[yours.experiments["n"] > 0].itertuples():
        place = line.row, line.dataset, line.variant
        if place in theirs.index:
            yield from _compared(line, theirs.loc[place], published.runs, yours.runs)


def _compared(
    line: Any, other: pd.Series, published: pd.DataFrame, yours: pd.DataFrame
) -> Iterator[str]:
    """Yield how each score of an experiment differs from the published one, or "".

    A score agrees within the published spread, and otherwise if both are printed alike, but never
    if it is one of other data or settings, or if other runs diverged.
    """
    unlike, scale = _unlike(line, other, published, yours), metric_of_line(line).scale
    for score in SCORES:
        n, published_n = getattr(line, f"{score}_n"), other[f"{score}_n"]
        ended = (n or line.fate) and (published_n or other["fate"])
        if not ended or not (n or published_n):  # one side did not run, or neither has a number
            continue
        if unlike or not n or not published_n:
            fate = line.fate if not n else f"published {other['fate']}"
            yield f"{line.row}: {unlike or fate}"
            continue
        texts = score_text(line, score), score_text(other, score)
        spread = 0.0 if published_n < 2 else other[f"{score}_std"]
        near = scale * abs(getattr(line, score) - other[score]) <= scale * spread
        near = near or texts[0] == texts[1]
        yield "" if near else f"{line.row} {score} {texts[0]}, published {texts[1]}"


def _unlike(line: Any, other: pd.Series, published: pd.DataFrame, yours: pd.DataFrame) -> str:
    """Return why your runs of a row do not repeat the published ones; empty if they do."""
    if not other["n"]:
        return ""
    mine = yours[yours["experiment"] == line.experiment]
    theirs = published[published["experiment"] == other["experiment"]]
    reasons, first = [], theirs.iloc[0]
    if line.fingerprint != other["fingerprint"]:
        data = f"data {short(line.fingerprint)}, published {short(other['fingerprint'])}"
        reasons.append(data)
    settings = dict.fromkeys(
        s for r in mine["record"] for s in difference(r.config, first["record"].config)
    )
    if settings or line.config_hash != other["config_hash"]:
        reasons.append(f"other settings ({', '.join(settings) or 'configuration hash'})")
    both = {*mine["instance"]} & {*theirs["instance"]}
    lost = [{*runs.loc[runs["diverged"], "instance"]} & both for runs in (mine, theirs)]
    if lost[0] != lost[1]:
        reasons.append(f"{len(lost[0])} diverged, published {len(lost[1])} of these")
    return "; ".join(reasons)
