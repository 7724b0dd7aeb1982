"""The page: what it opens with, its order, its links, and that it is valid."""

import re
from itertools import pairwise
from urllib.parse import unquote

import pytest

from phantomgrad_suite.report.catalogue import FIGURES
from phantomgrad_suite.report.inputs import read_paper

README = """\
# Results

## How to read a table

`A(5, 0.5)` is the paper's $A_{5,0.5}$.

## Findings

**Cost.** See [the numbers](README.md).

**Chains, more epochs.** They are [solved](tables/chains.md).

**Table 4.** With ten folds.

### More

Text.
"""


@pytest.fixture
def folder(results):
    """The paper's numbers, and runs of three tables."""
    results.numbers[:] = read_paper()
    cox2 = {"dataset": "COX2", "model": "IGNN", "method": "Implicit"}
    results.add("table4/cox2_implicit", "seed0", [0.8, 0.9], label=cox2)
    results.add("chains/implicit", "seed0", [0.8, 0.9])
    results.add("odd/row", "seed0", [0.8])
    (results.path / "README.md").write_text(README, encoding="utf-8")
    return results


def test_it_is_written_with_its_figures_in_the_order_of_the_paper(folder, capsys):
    assert folder.report("chains", "table4", "odd") == 0
    assert capsys.readouterr().out.endswith(f"wrote {folder.path / 'index.html'}\n")
    page = folder.page()
    assert (folder.path / "index.html").read_text(encoding="utf-8") == page.html
    titles = [title for title in page.text("h2") if title != "Cost"]
    assert titles[2:] == ["Table 4: IGNN on graph tasks", "Chains: IGNN on chains of nodes", "Odd"]
    sections = page.html.split("<section")
    assert sections[-1].index("<img") < sections[-1].index("<details>")  # a figure first
    assert "Records by <code>python scripts/train.py table=chains</code>" in page.html
    assert "● made" in f"● {page.text('p', **{'class': 'state made'})[0]}"
    assert "partly made: 1 of 12 rows in full" in page.text("p", **{"class": "state partly-made"})
    assert "Figure 2 (make reproduce-figure2)" in " ".join(page.text("p"))
    anchors = {attributes["id"] for _, attributes in page.tags if "id" in attributes}
    links = [a["href"] for a in page.every("a")] + [i["src"] for i in page.every("img")]
    assert {"figures/table4.pdf", "figures/odd.svg", "README.md", "#chains"} <= set(links)
    for link in links:
        found = link[1:] in anchors if link[0] == "#" else (folder.path / unquote(link)).is_file()
        assert found, f"{link} leads nowhere"
    assert not re.search(r"https?:|//|<script|@import|url\(", page.html)


def test_it_is_valid_and_accessible_html(folder):
    page = folder.page()
    assert page.unclosed == []
    assert page.every("html") == [{"lang": "en"}]
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(below <= above + 1 for above, below in pairwise(levels))
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert all(image["alt"] for image in page.every("img"))
    assert page.html.count('<div class="scroll"') == page.html.count(
        "<table>"
    )  # nothing else is wide
    assert all(re.fullmatch(r"[A-Z].*\.", caption) for caption in FIGURES.values())


def test_findings_come_from_the_readme(folder):
    page = folder.page()
    sections = {key: page.text("section", id=key)[0] for key in ("chains", "table4")}
    assert "Chains, more epochs. They are solved." in sections["chains"]
    assert "Table 4. With ten folds." in sections["table4"]
    assert page.text("details", id="findings") == [
        "Findings on no single table Cost. See the numbers. More Text."
    ]
    assert "<code>A(5, 0.5)</code> is the paper's <i>A</i><sub>5,0.5</sub>" in page.html


def test_without_records_and_readme_the_page_is_almost_empty(results):
    results.numbers.clear()
    page = results.page()
    assert page.text("p")[-1].startswith("Not made yet: Figure 1 (make reproduce-figure1), Table 1")
    assert page.every("img", "table", "details") == []


def test_nothing_in_the_inputs_is_taken_for_html(folder):
    nasty = "<img src=x onerror=alert(1)> {{ 7 * 7 }} <b>&amp;"
    folder.add("digits/row", "seed0", [0.5], label={"dataset": nasty, "method": nasty})
    (folder.path / "README.md").write_text(f"## Findings\n\n{nasty}\n\n<script>1</script>")
    page = folder.page()
    assert [i for i in page.every("img") if not i["src"].startswith("figures/")] == []
    assert page.every("script") == []
    assert "49" not in " ".join(page.text("details"))
