"""Hooks of mkdocs: add the results and the examples to the site, and render equations.

Equations become MathML, which browsers draw themselves: no script, no font, no network.
"""

import html
import posixpath
import re
from pathlib import Path
from typing import Any

from examples import markdown
from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
# Their tables and pictures need the whole width: no contents at the right.
WIDE = ("results/tables/", "results/claims.md", "gallery.md")
EQUATION = r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>'


def on_files(files: Files, config: Any) -> None:
    """Add the page of results with its tables and figures, and run the examples."""
    for path in sorted((ROOT / "results").rglob("*")):
        if path.suffix in (".md", ".svg"):
            name = str(path.relative_to(ROOT))
            files.append(File.generated(config, name, abs_src_path=str(path)))
    for path in sorted((ROOT / "docs" / "examples").glob("*.py")):
        page, figures = markdown(path)
        files.append(File.generated(config, f"examples/{path.stem}.md", content=page))
        for name, content in figures.items():
            files.append(File.generated(config, f"examples/{name}", content=content))


def on_page_markdown(markdown: str, page: Any, files: Files, **_: Any) -> str:
    """Links to results and examples: on GitHub they lie next to docs, and are files of code."""
    if page.file.src_uri.startswith(WIDE):
        page.meta["hide"] = ["toc"]
    up = "../" * page.file.src_uri.count("/")
    text = markdown.replace(f"]({up}../results/", f"]({up}results/")
    text = re.sub(r"(\]\((?:\.\./)*examples/\w+)\.py\)", r"\1.md)", text)

    def shown(link: re.Match[str]) -> str:
        """Keep the text alone of a link to a file that the site lacks, such as a record."""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page.file.src_uri), link[2]))
        ours = (ROOT / path).exists() or (ROOT / "docs" / path).exists()
        return link[1] if ours and not files.get_file_from_path(path) else link[0]

    return re.sub(r"(?<!!)\[([^\[\]]+)\]\((?!https?:)([^()#\s]+)\)", shown, text)


def on_page_content(html: str, **_: Any) -> str:
    """Draw the equations that arithmatex has marked."""
    return re.sub(EQUATION, _mathml, html, flags=re.DOTALL)


def _mathml(match: re.Match[str]) -> str:
    display = "block" if match[1] == "div" else "inline"
    text = html.unescape(match[2]).strip()
    text = text.replace(r"\Big(", r"\left(").replace(r"\Big)", r"\right)")  # to be stretched alike
    return convert(text, display=display)
