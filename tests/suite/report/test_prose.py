"""Markdown: its sections, the levels of its headings, and the links it may keep."""

from __future__ import annotations

from pathlib import Path

import pytest
from report.pages import write

from phantomgrad_suite.report.prose import Document, Heading, Prose, nest, read_document


@pytest.fixture
def read(tmp_path: Path):
    def make(text: str) -> Document:
        write(tmp_path / "tables" / "page.md", f"# Title\n\n{text}")
        return read_document(tmp_path / "tables" / "page.md", tmp_path)

    return make


def html(document: Document) -> str:
    return "".join(part.html for part in document.parts if isinstance(part, Prose))


def test_a_section_ends_at_the_next_heading_of_its_level(read) -> None:
    document = read("## A\n\none\n\n### B\n\ntwo\n\n## C\n\nthree\n")
    inside = document.section("A")
    assert [p.text for p in inside if isinstance(p, Heading)] == ["B"]
    assert [str(p.html) for p in inside if isinstance(p, Prose)] == ["<p>one</p>\n", "<p>two</p>\n"]
    assert document.section("D") == ()


def test_headings_never_skip_a_level(read) -> None:
    parts = read("#### deep\n\n## up\n\n#### down\n").parts
    for top in (2, 3):
        levels = [part.level for part in nest(parts, top) if isinstance(part, Heading)]
        assert levels == [top + 1, top + 1, top + 2]


@pytest.mark.parametrize(
    ("target", "kept"),
    [
        ("../bench/cpu.md", "bench/cpu.md"),
        ("../a%20b.md", "a%20b.md"),
        ("page.md#there", "tables/page.md"),
        ("../../outside.md", ""),
        ("/etc/passwd", ""),
        ("#here", ""),
        ("missing.md", ""),
        ("https://example.org", ""),
        ("//example.org/x", ""),
    ],
)
def test_only_links_to_files_beside_the_page_are_kept(read, tmp_path, target, kept) -> None:
    write(tmp_path / "bench" / "cpu.md", "")
    write(tmp_path / "a b.md", "")
    write(tmp_path.parent / "outside.md", "")
    expected = f'<a href="{kept}">word</a>' if kept else "word"
    assert html(read(f"A [word]({target}).")) == f"<p>A {expected}.</p>\n"


def test_symbols_are_set_and_money_is_not(read) -> None:
    assert html(read("$A_{5,0.5}$ & $5")) == "<p><i>A</i><sub>5,0.5</sub> &amp; $5</p>\n"


def test_a_bold_line_above_a_table_is_its_caption(read) -> None:
    (sheet,) = read("**As in the paper**\n\n| a |\n| - |\n| 1 |\n").parts
    assert (sheet.caption, sheet.caption_shown) == ("As in the paper", True)
    (prose,) = read("**As in the paper**\n").parts
    assert "<strong>" in prose.html
