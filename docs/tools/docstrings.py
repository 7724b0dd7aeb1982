"""The roles of reStructuredText in our docstrings as Markdown, for the API reference."""

import re
from pathlib import Path
from typing import Any

import griffe

PAGES = Path(__file__).parents[1] / "api"
DOCUMENTED = {
    name
    for page in PAGES.glob("*.md")
    for name in re.findall(r"^::: .*\.(\w+)$", page.read_text(), re.MULTILINE)
}
PACKAGES = (
    "phantomgrad.models",
    "phantomgrad.solvers",
    "phantomgrad.nn",
    "phantomgrad.graphs",
    "phantomgrad",
)


class Roles(griffe.Extension):
    """Equations become `$...$` and `$$...$$`, names of documented objects links."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Rewrite all docstrings of a package, which is loaded as a whole."""
        public = {}
        for module in PACKAGES:
            inner = pkg[module.removeprefix("phantomgrad.")] if "." in module else pkg
            public |= {name: f"{module}.{name}" for name in DOCUMENTED & set(inner.members)}
        rewrite(pkg, public)


def rewrite(module: griffe.Object, public: dict[str, str]) -> None:
    """Rewrite the docstrings of an object and of its members."""
    if module.docstring:
        module.docstring.value = markdown(module.docstring.value, public)
    for member in module.members.values():
        if not member.is_alias:
            rewrite(member, public)  # type: ignore[arg-type]


def markdown(text: str, public: dict[str, str]) -> str:
    """Return a docstring with its roles and `math` directives in Markdown."""
    text = re.sub(
        r"^( *)\.\. math::((?:.*\n?)(?:\1 +\S.*\n?|\s*\n(?=\1 +\S))*)",
        lambda m: f"{m[1]}$$\n{m[1]}{' '.join(m[2].split())}\n{m[1]}$$\n",
        text,
        flags=re.MULTILINE,
    )
    text = re.sub(r":math:`([^`]+)`", lambda m: f"${' '.join(m[1].split())}$", text)

    def link(match: re.Match[str]) -> str:
        name = match[1].rpartition(".")[2]
        shown = match[1] if match[0].startswith(":meth:") else name
        return f"[`{shown}`][{public[name]}]" if name in public else f"`{shown}`"

    return re.sub(r":(?:class|func|meth|attr):`([^`]+)`", link, text)
