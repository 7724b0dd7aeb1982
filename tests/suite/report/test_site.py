"""The page of all results: what stands on it, in which order, and where its links lead."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import pytest
from report.pages import FIGURES, SVG, Page, fill, write

from phantomgrad_suite.report.errors import ReportError
from phantomgrad_suite.report.site import build_site


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return fill(tmp_path)


@pytest.fixture
def page(folder: Path) -> Page:
    return Page(build_site(folder).decode())


def pieces(page: Page) -> dict[str, str]:
    """Return the overview: what is said of each piece of the paper."""
    lines = [line for line in page.text("li") if "python scripts/" in line]
    return {" ".join(line.split()[:2]): line for line in lines}


def test_sections_stand_in_the_order_of_the_paper_and_ours_follow(page: Page) -> None:
    assert page.text("h2") == [
        "Overview",
        "Table 1: Ablation settings on CIFAR-10",
        "Table 4: IGNN on graph tasks",
        "Figure 4: gradient solvers under ill-conditioning",
        "Chains: IGNN on the embedded default data",
        "Speed: solvers and gradients against torchdeq",
        "More: what else there is",
        "Findings",
        "How to read a table",
    ]
    assert page.text("h3") == ["Cost", "Ours against torchdeq 0.1.0", "An odd page"]


def test_every_table_and_figure_is_there_once(page: Page) -> None:
    assert page.text("caption") == [
        "Table 1: Ablation settings on CIFAR-10",
        "As in the paper",
        "Table 4: IGNN on graph tasks: Cost",
        "Chains: IGNN on the embedded default data",
        "Ours against torchdeq 0.1.0",
    ]
    sources = [image["src"] for image in page.every("img")]
    assert sorted(sources) == sorted(f"figures/{name}.svg" for name in FIGURES)


def test_images_have_words_and_a_place_kept_for_them(page: Page) -> None:
    first, *others = page.every("img")
    assert first["src"] == "figures/table4.svg"
    assert (first["width"], first["height"], first["loading"]) == ("1067", "96", "lazy")
    assert "min-width" in first["style"]
    assert not any("style" in image for image in others)
    words = [image["alt"] for image in (first, *others)]
    assert all(words)
    assert len(set(words)) == len(words)


def test_links_are_local_and_lead_somewhere(folder: Path, page: Page) -> None:
    anchors = {attributes["id"] for _, attributes in page.tags if "id" in attributes}
    links = [a["href"] for a in page.every("a")] + [i["src"] for i in page.every("img")]
    assert {"figures/table4.pdf", "figures/stray.svg", "bench/cpu.md", "#table4"} <= set(links)
    for link in links:
        where = link[1:] in anchors if link[0] == "#" else (folder / unquote(link)).is_file()
        assert where, f"{link} leads nowhere"
    assert not re.search(r"https?:|//|<script|@import|url\(", page.html)


def test_it_is_sound_html_for_every_reader(page: Page) -> None:
    assert page.unclosed == []
    assert page.every("html") == [{"lang": "en"}]
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(below <= above + 1 for above, below in pairwise(levels))
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert all(th.get("scope") in {"col", "row", "rowgroup"} for th in page.every("th"))
    assert page.every("a")[0] == {"class": "skip", "href": "#main"}


def test_columns_that_only_repeat_are_headings_of_rows(page: Page) -> None:
    groups = [
        text
        for (tag, attributes), text in zip(page.tags, page.texts, strict=True)
        if tag == "th" and attributes["scope"] == "rowgroup"
    ]
    assert groups == [
        "CIFAR-10",
        "COX2 · accuracy (%) ↑ · IGNN",
        "PPI · micro-F1 (%) ↑ · IGNN",
        "Chains",
        "Broyden (512, 128)",
    ]


def test_the_overview_says_how_far_each_piece_is_and_how_to_make_it(page: Page) -> None:
    said = pieces(page)
    assert len(said) == 9
    assert "● " not in page.html  # states are words, marks are the style's
    assert "partly 1 of 3 rows in full python scripts/train.py table=table4" in said["Table 4"]
    assert "not run yet the paper's numbers only" in said["Table 1"]
    assert "not run yet python scripts/train.py table=figure2" in said["Figure 2"]
    assert " made python scripts/study.py suite=figure4" in said["Figure 4"]
    summary = "Of the paper's 9 pieces, 1 is made, 1 is partly made, 7 are not run yet."
    assert summary in page.text("p")


def test_the_words_of_the_readme_are_taken_over(page: Page) -> None:
    assert "Cost. See the bench, not the web." in page.text("p")
    assert "<code>A(5, 0.5)</code> is the paper's <i>A</i><sub>5,0.5</sub>" in page.html


def test_an_empty_folder_gives_a_page_that_says_so(tmp_path: Path) -> None:
    page = Page(build_site(tmp_path).decode())
    assert all("not run yet" in line for line in pieces(page).values())
    assert page.text("p").count("README.md beside this page has no section of this name.") == 2
    assert page.every("img", "table") == []


def test_nothing_in_the_inputs_is_taken_for_html(folder: Path) -> None:
    nasty = "<img src=x onerror=alert(1)> {{ 7 * 7 }} <b>&amp;"
    write(folder / "tables" / "odd.md", f"# {nasty}\n\n## {nasty}\n\n{nasty}\n\n<script>1</script>")
    write(folder / "tables" / "digits.md", f"# D\n\n| {nasty} | x |\n| - | - |\n| {nasty} | 1 |\n")
    write(folder / "figures" / 'odd"<b>&.svg', SVG.format(width=10))
    page = Page(build_site(folder).decode())
    assert [i for i in page.every("img") if not i["src"].startswith("figures/")] == []
    assert page.every("script") == []
    assert "figures/odd%22%3Cb%3E%26.svg" in [image["src"] for image in page.every("img")]
    assert "49" not in " ".join(page.text("h3"))


def test_the_same_folder_gives_the_same_bytes(folder: Path, tmp_path_factory) -> None:
    again = fill(tmp_path_factory.mktemp("again"))
    assert build_site(folder) == build_site(folder) == build_site(again)


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("tables/table4.md", b"\xff\xfe", "table4.md cannot be read"),
        ("tables/table4.md", b"", "table4.md does not begin with a title"),
        ("tables/table4.md", b"| a |\n| - |\n", "table4.md does not begin with a title"),
        ("bench/cpu.md", b"\xff", "cpu.md cannot be read"),
        ("README.md", b"\xff", "README.md cannot be read"),
        ("figures/table4.svg", b"<svg", "table4.svg is no SVG with a size"),
        ("figures/table4.svg", b"<svg width='9furlongs'/>", "table4.svg is no SVG with a size"),
        ("figures/table4.svg", b"<svg width='0' height='1'/>", "table4.svg is no SVG with a size"),
    ],
)
def test_a_damaged_file_is_named(folder: Path, name: str, content: bytes, complaint: str) -> None:
    (folder / name).write_bytes(content)
    with pytest.raises(ReportError, match=re.escape(complaint)):
        build_site(folder)


def test_the_command_writes_it_and_says_where(results, capsys) -> None:
    assert results.report("table9") == 0
    assert capsys.readouterr().out.endswith(f"wrote {results.path / 'index.html'}\n")
    page = Page((results.path / "index.html").read_text(encoding="utf-8"))
    assert [image["src"] for image in page.every("img")] == ["figures/table9.svg"]
    (results.path / "figures" / "other.svg").write_text("damaged", encoding="utf-8")
    assert results.report("table9") == 1
    assert "other.svg is no SVG with a size" in capsys.readouterr().err
