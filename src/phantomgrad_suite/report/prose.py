"""Hand-written Markdown as HTML: the findings and the bench, shown on the page of results."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from markdown_it import MarkdownIt
from markupsafe import Markup

from phantomgrad_suite.runs.errors import UserError

_LINK = re.compile(r'<a href="([^"]*)">(.*?)</a>', re.DOTALL)
_SYMBOL = re.compile(r"\$([A-Za-z])_\{([^{}$]*)\}\$")
_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")


def sections_of(path: Path, root: Path) -> dict[str, Markup]:
    """Return the sections of a Markdown file as HTML, by their title; empty without the file.

    Links to files in ``root``, the folder of the page, are kept; others become plain text.
    """
    try:
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
    except (OSError, UnicodeError) as error:
        raise UserError(f"{path} cannot be read ({error}): restore it") from error
    parts = re.split(r"^##? (.+)$", text, flags=re.MULTILINE)[1:]
    return {
        title: _html(body, path.parent, root)
        for title, body in zip(parts[::2], parts[1::2], strict=True)
    }


def _html(text: str, folder: Path, root: Path) -> Markup:
    def link(match: re.Match[str]) -> str:
        target = urlsplit(match[1])
        below = folder.relative_to(root).as_posix()
        path = posixpath.normpath(posixpath.join(below, unquote(target.path)))
        outside = target.scheme or target.netloc or path.startswith(("/", ".."))
        if outside or not target.path or not (root / path).is_file():
            return match[2]
        return f'<a href="{quote(path)}">{match[2]}</a>'

    html = _LINK.sub(link, _SYMBOL.sub(r"<i>\1</i><sub>\2</sub>", _MARKDOWN.render(text)))
    html = html.replace("<table>", '<div class="scroll" role="region" tabindex="0"><table>')
    return Markup(html.replace("</table>", "</table></div>"))
