"""All tables and figures on one HTML page, which needs no script and no network."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from phantomgrad_suite.report.document import Table, body, html
from phantomgrad_suite.report.figures.style import Plot

_TEMPLATES = Environment(
    loader=PackageLoader("phantomgrad_suite.report"),
    undefined=StrictUndefined,
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


def page(
    results: Path,
    tables: Sequence[Table],
    figures: Mapping[str, Sequence[Plot]],
    claims: Table | None = None,
    first: str = "",
) -> str:
    """Return the page of a folder of results, with the findings of its ``README.md``.

    It shows ``claims``, then ``tables`` in this order, with the figures of each by its key.
    ``first`` is a sentence on top, such as how far your runs agree.
    """
    readme = _sections(results / "README.md")
    findings, other = _findings(readme.get("Findings", ""), tables)
    bodies = {table.key: _linked(body(table)) for table in tables}
    if claims:
        bodies["claims"] = _linked(body(replace(claims, sections=claims.sections[1:])))
    return _TEMPLATES.get_template("index.html.j2").render(
        first=first,
        claims=claims,
        tables=[table for table in tables if table.sections],
        missing=[table for table in tables if not table.sections],
        figures=figures,
        bodies=bodies,
        findings=findings,
        other=other,
        reading=_linked(readme.get("How to read a table", "")),
    )


def _sections(path: Path) -> dict[str, str]:
    """Return the sections of a Markdown file by title; none if it is missing."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    parts = re.split(r"^##? (.+)$", text, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _findings(text: str, tables: Sequence[Table]) -> tuple[dict[str, Markup], Markup]:
    """Return the findings on each table, which start with its label in bold, and all others."""
    found, other = dict[str, str](), ""
    for part in re.split(r"^(?=\*\*|### )", text, flags=re.MULTILINE):
        named = [t for t in tables if part.startswith(f"**{t.entry.label}")]
        if named:  # a label may begin with another one
            key = max(named, key=lambda table: len(table.entry.label)).key
            found[key] = found.get(key, "") + part
        else:
            other += part
    return {key: _linked(part) for key, part in found.items()}, _linked(other)


def _linked(text: str) -> Markup:
    """Return Markdown as HTML; links to tables lead to their places on the page."""
    found = re.sub(r"\$([A-Z])_\{([^{}$]*)\}\$", r"<i>\1</i><sub>\2</sub>", html(text))
    return Markup(re.sub(r'href="tables/([^"]+)\.md"', r'href="#\1"', found))
