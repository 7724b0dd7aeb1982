"""A small folder of results written by hand, and what a page made from it holds."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

SVG = """\
<?xml version="1.0" encoding="utf-8"?>
<svg xmlns="http://www.w3.org/2000/svg" width="{width}pt" height="72pt" viewBox="0 0 {width} 72">
<rect width="{width}" height="72" style="fill: #ffffff"/></svg>
"""
TABLE4 = """\
# Table 4: IGNN on graph tasks

**As in the paper**

| Data set | Metric | Model | Method | Params | Paper | Best | n |
| --- | --- | --- | --- | --: | --: | --: | --: |
| COX2 | accuracy (%) ↑ | IGNN | Implicit | 38K | 84.1 ± 2.9 | 84.4 ± 4.5 | 10 |
| COX2 | accuracy (%) ↑ | IGNN | UPG A(5, 0.5) | 38K | 83.9 ± 3.0 | — | — |
| PPI | micro-F1 (%) ↑ | IGNN | Implicit | 4.7M | 97.6 | — | — |

- Mean over n runs.

## Cost

| Data set | Method | All runs |
| --- | --- | --: |
| COX2 | Implicit | 20 s |
"""
TABLE1 = """\
# Table 1: Ablation settings on CIFAR-10

| Data set | Method | Params | Paper | Best | n |
| --- | --- | --: | --: | --: | --: |
| CIFAR-10 | Implicit | 170K | 85.0 | — | — |
| CIFAR-10 | w/o Dropout | 170K | 83.7 | — | — |
"""
CHAINS = """\
# Chains: IGNN on the embedded default data

| Data set | Method | Best |
| --- | --- | --: |
| Chains | Implicit | 100.0 |
| Chains | UPG A(5, 0.5) | 100.0 |
"""
BENCH = """\
# Ours against torchdeq 0.1.0

| case | quantity | ours |
| --- | --- | --: |
| Broyden (512, 128) | total | 13.5 ms |
| | peak memory | 8.1 MiB |
"""
README = """\
# Results

## How to read a table

`A(5, 0.5)` is the paper's $A_{5,0.5}$.

## Findings

**Cost.** See [the bench](bench/cpu.md), not [the web](https://example.org/x).
"""
PAGES = {
    "README.md": README,
    "tables/table4.md": TABLE4,
    "tables/table1.md": TABLE1,
    "tables/chains.md": CHAINS,
    "tables/odd.md": "# An odd page\n\nWords.\n",
    "bench/cpu.md": BENCH,
}
FIGURES = {"table4": 800, "table4_honest_curves": 400, "figure4_tanh": 400, "stray": 400}


def fill(folder: Path) -> Path:
    """Write the pages and figures above; the first figure has a PDF too."""
    for name, text in PAGES.items():
        write(folder / name, text)
    for name, width in FIGURES.items():
        write(folder / "figures" / f"{name}.svg", SVG.format(width=width))
    write(folder / "figures" / "table4.pdf", "%PDF")
    return folder


def write(path: Path, text: str) -> None:
    """Write a file and the folder it is in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@dataclass
class Page(HTMLParser):
    """The tags of a page with their attributes, and the text below each of them."""

    html: str
    tags: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    unclosed: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        self.texts.append("")
        if tag not in {"meta", "link", "img", "br", "hr"}:
            self.unclosed.append(len(self.tags) - 1)

    def handle_endtag(self, tag: str) -> None:
        opened = self.tags[self.unclosed.pop()][0]
        assert opened == tag, f"<{opened}> is closed by </{tag}>"

    def handle_data(self, data: str) -> None:
        for position in self.unclosed:
            self.texts[position] += data

    def every(self, *names: str) -> list[dict[str, str]]:
        """Return the attributes of each tag of these names."""
        return [attributes for tag, attributes in self.tags if tag in names]

    def text(self, *names: str) -> list[str]:
        """Return the text of each tag of these names, its spaces collapsed."""
        found = zip(self.tags, self.texts, strict=True)
        return [" ".join(text.split()) for (tag, _), text in found if tag in names]
