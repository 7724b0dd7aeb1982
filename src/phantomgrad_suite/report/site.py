"""One page with every table and figure made so far; it needs no script and no network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from phantomgrad_suite.report.catalogue import PAPER, SPEED, TASKS, Artifact
from phantomgrad_suite.report.pictures import Picture, read_picture
from phantomgrad_suite.report.prose import Document, Part, nest, read_document
from phantomgrad_suite.report.status import Status, status_of

_MORE = Artifact("more", "More", "what else there is", "python scripts/report.py")


@dataclass(frozen=True)
class Entry:
    """A table with its figures, or the figures that belong to no table of their own.

    Attributes:
        title: its heading, empty where that of the section says it.
        results: the parts before the figures.
        pictures: the figures.
        rest: the parts after them.
    """

    title: str
    results: list[Part]
    pictures: list[Picture]
    rest: list[Part]


@dataclass(frozen=True)
class Section:
    """What there is of an artifact, and how far it is made; without entries, nothing yet."""

    artifact: Artifact
    heading: str
    status: Status
    entries: list[Entry]


@dataclass(frozen=True)
class _Found:
    """Everything in the folder of results that the page shows."""

    documents: list[Document]
    pictures: list[Picture]

    def of(self, artifact: Artifact) -> _Found:
        """Return what belongs to ``artifact``."""
        return _Found(
            [d for d in self.documents if artifact.owns(d.stem)],
            [p for p in self.pictures if artifact.owns(p.stem)],
        )

    def unknown(self) -> _Found:
        """Return what belongs to no artifact."""
        known = [*PAPER, *TASKS]
        return _Found(
            [d for d in self.documents if not any(a.owns(d.stem) for a in known)],
            [p for p in self.pictures if not any(a.owns(p.stem) for a in known)],
        )


def build_site(results: Path) -> bytes:
    """Return the page of a folder of results; the same folder gives the same bytes.

    Raises:
        ReportError: a table, a figure or the page of findings cannot be read.
    """
    found = _Found(
        [read_document(path, results) for path in sorted((results / "tables").glob("*.md"))],
        [read_picture(path) for path in sorted((results / "figures").glob("*.svg"))],
    )
    bench = [read_document(path, results) for path in sorted((results / "bench").glob("*.md"))]
    readme = results / "README.md"
    words = read_document(readme, results) if readme.exists() else Document("README", "", ())
    paper = [_section(artifact, found.of(artifact)) for artifact in PAPER]
    others = [_section(artifact, found.of(artifact)) for artifact in TASKS]
    others += [_section(SPEED, _Found(bench, [])), _section(_MORE, found.unknown())]
    page = _environment().get_template("index.html.j2")
    text = page.render(
        paper=paper,
        counts=Counter(section.status.state for section in paper),
        sections=[section for section in (*paper, *others) if section.entries],
        findings=nest(words.section("Findings"), 2),
        reading=nest(words.section("How to read a table"), 2),
    )
    return text.encode()


def _section(artifact: Artifact, found: _Found) -> Section:
    status = status_of(artifact, found.documents, bool(found.pictures))
    heading = artifact.heading
    if len(found.documents) == 1 and found.documents[0].title.startswith(artifact.kind):
        heading = found.documents[0].title
    twins = Counter(document.title for document in found.documents)
    left = list(found.pictures)
    entries = []
    for document in found.documents:
        title = document.title if document.title != heading else ""
        if twins[title] > 1:
            title = f"{title} ({document.stem})"
        mine = [picture for picture in left if _beside(picture, document, found.documents)]
        left = [picture for picture in left if picture not in mine]
        entries.append(_entry(document, title, mine))
    if left:
        entries.append(Entry("", [], left, []))
    return Section(artifact, heading, status, entries)


def _entry(document: Document, title: str, pictures: list[Picture]) -> Entry:
    top = 3 if title else 2
    return Entry(title, nest(document.results, top), pictures, nest(document.rest, top))


def _beside(picture: Picture, document: Document, documents: Sequence[Document]) -> bool:
    """Return whether ``document`` is the one whose name the figure continues the furthest."""
    continued = [d.stem for d in documents if f"{picture.stem}_".startswith(f"{d.stem}_")]
    return bool(continued) and max(continued, key=len) == document.stem


def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("phantomgrad_suite.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
