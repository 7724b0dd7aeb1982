"""All tables and figures on one HTML page, which needs no script and no network."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

from markdown_it import MarkdownIt
from markupsafe import Markup

from phantomgrad_suite.report.catalogue import templates
from phantomgrad_suite.report.figures.plot import Plot
from phantomgrad_suite.report.table import Block, Row, Section, State, Table

_SYMBOL = 3  # letters of a heading that is a symbol
_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")


def render(
    results: Path,
    tables: Sequence[Table],
    figures: Mapping[str, list[Plot]],
    page: Path | None = None,
    claims: Table | None = None,
) -> str:
    """Return the page of a folder of results (figures and ``README.md``).

    It shows ``claims``, then ``tables`` in this order, with the figures of each by its key.
    ``page`` is the folder of page and figures, by default ``results``.
    """
    page = page or results
    environment = templates(autoescape=True)
    environment.globals |= {"folded": folded, "groups": groups}
    paper = [table for table in tables if table.entry.in_paper]
    counts = Counter(table.state for table in paper)
    readme = sections_of(results / "README.md")
    shown = [table for table in tables if table.sections]
    leads = {table.key: f"<p><strong>{table.entry.label}" for table in shown}
    findings = dict.fromkeys(("", *leads), Markup())  # those on a table start with its label
    settled, *parts = re.split("(?=<p><strong>|<h3>)", readme.get("Findings", ""))
    for part in parts:
        findings[next((k for k, lead in leads.items() if part.startswith(lead)), "")] += Markup(
            part
        )
    return environment.get_template("index.html.j2").render(
        claims=claims,
        settled=Markup(settled),
        paper=paper,
        counts=[(state, counts[state]) for state in State if counts[state]],
        tables=shown,
        plots={
            key: [plot for plot in plots if (page / f"figures/{plot.name}.svg").is_file()]
            for key, plots in figures.items()
        },
        findings=findings,
        reading=readme.get("How to read a table", ""),
    )


def folded(section: Section) -> list[str]:
    """Return the headings of the text columns but the last: they become the titles of groups."""
    return [column.heading for column in section.columns if not column.numeric][:-1]


def groups(section: Section, block: Block) -> list[tuple[list[str], list[Row]]]:
    """Return the rows of a block by their folded columns, with the titles of each group."""

    def titles(row: Row) -> list[str]:
        texts = [(heading, row.text(heading)) for heading in folded(section)]
        return [f"{h} = {text}" if len(h) <= _SYMBOL else text for h, text in texts]

    return [(name, list(rows)) for name, rows in groupby(block.rows, titles)]


def sections_of(path: Path) -> dict[str, Markup]:
    """Return the sections of a Markdown file as HTML, by title; none if it is missing."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    parts = re.split(r"^##? (.+)$", text, flags=re.MULTILINE)[1:]
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return {title: _html(body) for title, body in pairs}


def _html(text: str) -> Markup:
    html = re.sub(r"\$([A-Z])_\{([^{}$]*)\}\$", r"<i>\1</i><sub>\2</sub>", _MARKDOWN.render(text))
    html = re.sub(r'href="tables/([^"]+)\.md"', r'href="#\1"', html)
    html = html.replace("<table>", '<div class="scroll" role="region" tabindex="0"><table>')
    return Markup(html.replace("</table>", "</table></div>"))
