"""Hand-written Markdown as HTML: the findings and the bench, shown on the page of results."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.token import Token
from markupsafe import Markup

from phantomgrad_suite.runs.errors import UserError

_SYMBOL = re.compile(r"\$([A-Za-z])_\{([^{}$]*)\}\$")
_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")


def read_prose(path: Path, root: Path, section: str = "") -> Markup:
    """Return a Markdown file as HTML without its title; empty if there is none.

    Args:
        path: the file.
        root: the folder of the page; links to files in it are kept, others become plain text.
        section: the title of the only section to return, without its heading.

    Raises:
        UserError: the file cannot be read.
    """
    if not path.is_file():
        return Markup("")
    try:
        tokens = _MARKDOWN.parse(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeError) as error:
        raise UserError(f"{path} cannot be read ({error}): restore it") from error
    kept = _section(tokens, section) if section else _without_title(tokens)
    for token in kept:
        if token.type == "inline":
            token.children = _local_links(token.children or [], path.parent, root)
    html = _MARKDOWN.renderer.render(kept, _MARKDOWN.options, {})
    html = html.replace("<table>", '<div class="scroll" role="region" tabindex="0"><table>')
    return Markup(html.replace("</table>", "</table></div>"))


def read_title(path: Path) -> str:
    """Return the title of a Markdown file, by default its name."""
    title = re.match(r"# (.+)", path.read_text(encoding="utf-8"))
    return title[1] if title else path.stem


def _without_title(tokens: list[Token]) -> list[Token]:
    return tokens[3:] if tokens and tokens[0].tag == "h1" else tokens


def _section(tokens: list[Token], title: str) -> list[Token]:
    """Return what stands between the heading ``title`` and the next one of its level."""
    for start, token in enumerate(tokens):
        if token.type == "heading_open" and tokens[start + 1].content == title:
            rest = tokens[start + 3 :]
            ends = [
                i for i, t in enumerate(rest) if t.type == "heading_open" and t.tag <= token.tag
            ]
            return rest[: ends[0]] if ends else rest
    return []


def _local_links(tokens: list[Token], folder: Path, root: Path) -> list[Token]:
    """Drop links that do not lead to a file of the page's folder; point others there."""
    kept, open_links = [], []
    for token in tokens:
        if token.type == "link_open":
            target = _local(str(token.attrs.get("href", "")), folder, root)
            token.attrs["href"] = target
            open_links.append(target)
        is_link = token.type in ("link_open", "link_close")
        if not is_link or open_links[-1]:
            kept.append(token)
        if token.type == "link_close":
            open_links.pop()
    return kept


def _local(target: str, folder: Path, root: Path) -> str:
    parts = urlsplit(target)
    if parts.scheme or parts.netloc or not parts.path:
        return ""
    below = folder.relative_to(root).as_posix()
    path = posixpath.normpath(posixpath.join(below, unquote(parts.path)))
    is_inside = not path.startswith(("/", "..")) and (root / path).is_file()
    return quote(path) if is_inside else ""


def _text(_: Any, tokens: list[Token], index: int, *__: Any) -> str:
    """Print ``$A_{5,0.5}$`` as a letter with an index; the page has no other mathematics."""
    return _SYMBOL.sub(r"<i>\1</i><sub>\2</sub>", escapeHtml(tokens[index].content))


_MARKDOWN.add_render_rule("text", _text)
