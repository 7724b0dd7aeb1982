"""Markdown as parts of the page: headings, prose, tables. Nothing in it is taken for HTML."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote, unquote, urlsplit

from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.tree import SyntaxTreeNode
from markupsafe import Markup

from phantomgrad_suite.report.errors import ReportError
from phantomgrad_suite.report.sheet import Cell, Row, Sheet

_SYMBOL = re.compile(r"\$([A-Za-z])_\{([^{}$]*)\}\$")


@dataclass(frozen=True)
class Heading:
    """A heading below the title."""

    kind: ClassVar[str] = "heading"
    level: int
    html: Markup
    text: str


@dataclass(frozen=True)
class Prose:
    """Anything but headings and tables."""

    kind: ClassVar[str] = "prose"
    html: Markup


Part = Heading | Prose | Sheet


@dataclass(frozen=True)
class Document:
    """A Markdown file: its name without suffix, its title, and what stands below."""

    stem: str
    title: str
    parts: tuple[Part, ...]

    @property
    def results(self) -> tuple[Part, ...]:
        """The parts before the first heading."""
        ends = [i for i, part in enumerate(self.parts) if isinstance(part, Heading)]
        return self.parts[: ends[0]] if ends else self.parts

    @property
    def rest(self) -> tuple[Part, ...]:
        """The parts from the first heading on."""
        return self.parts[len(self.results) :]

    def section(self, title: str) -> tuple[Part, ...]:
        """Return the parts below the heading ``title``, empty without it."""
        found: list[Part] = []
        level = 0
        for part in self.parts:
            if isinstance(part, Heading) and level and part.level <= level:
                break
            if level:
                found.append(part)
            elif isinstance(part, Heading) and part.text == title:
                level = part.level
        return tuple(found)


def read_document(path: Path, root: Path) -> Document:
    """Read a Markdown file that begins with a title.

    Args:
        path: the file.
        root: the folder of the page; links to files in it are kept.

    Raises:
        ReportError: the file cannot be read as text, or has no title.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise ReportError(f"{path} cannot be read ({error}): make it again") from error
    env = {"folder": path.parent.relative_to(root).as_posix(), "root": root, "open": []}
    nodes = SyntaxTreeNode(_MARKDOWN.parse(text, env)).children
    if not nodes or nodes[0].type != "heading" or nodes[0].tag != "h1":
        raise ReportError(f"{path} does not begin with a title (# ...): make it again")
    title = _plain(nodes[0])
    return Document(path.stem, title, tuple(_parts(title, nodes[1:], env)))


def nest(parts: Sequence[Part], top: int) -> list[Part]:
    """Return the parts with their headings below one of level ``top``, none skipping a level."""
    nested: list[Part] = []
    above = top
    for part in parts:
        if isinstance(part, Heading):
            above = max(top + 1, min(part.level + top - 1, above + 1))
            part = replace(part, level=above)
        nested.append(part)
    return nested


def _parts(title: str, nodes: Sequence[SyntaxTreeNode], env: dict[str, Any]) -> list[Part]:
    parts: list[Part] = []
    topic, caption = title, ""
    for node, following in zip(nodes, [*nodes[1:], None], strict=True):
        if node.type == "heading":
            topic = f"{title}: {_plain(node)}"
            parts.append(Heading(int(node.tag[1]), _inline(node.children[0], env), _plain(node)))
        elif node.type == "table":
            parts.append(_sheet(node, caption or topic, bool(caption), env))
            caption = ""
        elif following and following.type == "table" and _is_bold(node):
            caption = _plain(node).strip("*")
        else:
            html = _MARKDOWN.renderer.render(node.to_tokens(), _MARKDOWN.options, env)
            parts.append(Prose(Markup(html)))
    return parts


def _sheet(node: SyntaxTreeNode, caption: str, shown: bool, env: dict[str, Any]) -> Sheet:
    head, *body = [row for part in node.children for row in part.children]
    rows: list[Row] = [
        tuple(Cell(_inline(cell.children[0], env), _plain(cell)) for cell in row.children)
        for row in (head, *body)
    ]
    numeric = tuple("right" in str(cell.attrs.get("style", "")) for cell in head.children)
    return Sheet(caption, shown, rows[0], numeric, tuple(rows[1:]))


def _plain(node: SyntaxTreeNode) -> str:
    return node.children[0].content.strip() if node.children else ""


def _inline(node: SyntaxTreeNode, env: dict[str, Any]) -> Markup:
    return Markup(_MARKDOWN.renderer.render(node.to_tokens(), _MARKDOWN.options, env))


def _is_bold(node: SyntaxTreeNode) -> bool:
    words = node.children[0].children if node.type == "paragraph" else []
    return [word.type for word in words if word.type != "text" or word.content] == ["strong"]


def _text(_: RendererHTML, tokens: Sequence[Token], index: int, *__: Any) -> str:
    """Set ``$A_{5,0.5}$`` as a letter with an index; the page has no other mathematics."""
    return _SYMBOL.sub(r"<i>\1</i><sub>\2</sub>", escapeHtml(tokens[index].content))


def _open_link(
    _: RendererHTML, tokens: Sequence[Token], index: int, __: Any, env: dict[str, Any]
) -> str:
    target = _local(str(tokens[index].attrs.get("href", "")), env)
    env["open"].append(bool(target))
    return f'<a href="{escapeHtml(target)}">' if target else ""


def _close_link(_: RendererHTML, __: Any, ___: int, ____: Any, env: dict[str, Any]) -> str:
    return "</a>" if env["open"].pop() else ""


def _local(target: str, env: dict[str, Any]) -> str:
    """Return a link as seen from the page, empty if it does not lead to a file beside it."""
    parts = urlsplit(target)
    if parts.scheme or parts.netloc or not parts.path:
        return ""
    path = posixpath.normpath(posixpath.join(env["folder"], unquote(parts.path)))
    inside = not path.startswith(("/", ".."))
    return quote(path) if inside and (env["root"] / path).is_file() else ""


def _markdown() -> MarkdownIt:
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
    for name, rule in (("text", _text), ("link_open", _open_link), ("link_close", _close_link)):
        markdown.add_render_rule(name, rule)
    return markdown


_MARKDOWN = _markdown()
