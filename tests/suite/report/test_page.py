"""The page: what it opens with, its order, its links, and that nothing in it is taken for HTML."""

import re
from html import unescape
from urllib.parse import unquote

import pytest

from phantomgrad_suite.report.catalogue import catalogue
from phantomgrad_suite.report.inputs import read_paper
from phantomgrad_suite.runs.configs import RESULTS

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


def text(html):
    return " ".join(unescape(re.sub("<[^>]*>", "", html)).split())


def sections(page):
    """Return the text of each table's section, by the key of the table."""
    parts = re.findall(r'<section id="(\w+)">(.*?)</section>', page, re.DOTALL)
    return {key: text(part) for key, part in parts}


def test_it_has_figures_and_findings_in_the_order_of_the_paper(folder, capsys):
    assert folder.report("chains", "table4", "odd") == 0
    assert capsys.readouterr().out.endswith(f"wrote {folder.path / 'index.html'}\n")
    page = (folder.path / "index.html").read_text(encoding="utf-8")
    found = sections(page)
    assert [*found] == ["claims", "table1", "table3", "table4", "chains", "odd"]
    assert found["table4"].startswith("Table 4: IGNN on graph tasks")
    assert "Records by python scripts/train.py table=chains" in found["chains"]
    assert "Chains, more epochs. They are solved." in found["chains"]
    assert "Table 4. With ten folds." in found["table4"]
    assert "Findings on no single table Cost. See the numbers. More Text." in text(page)
    assert "Figure 2 (make reproduce-figure2)" in text(page)
    assert "<code>A(5, 0.5)</code> is the paper's <i>A</i><sub>5,0.5</sub>" in page
    assert page.rindex("<img") < page.rindex("<details>", 0, page.rindex("</section>"))
    assert page.count('<div class="scroll"') == page.count("<table>")  # nothing else is wide


def test_its_links_lead_somewhere_and_it_needs_no_network(folder):
    assert folder.report() == 0
    page = (folder.path / "index.html").read_text(encoding="utf-8")
    anchors = re.findall(r' id="([^"]+)"', page)
    links = re.findall(r' (?:href|src)="([^"]+)"', page)
    assert len(anchors) == len({*anchors})
    figures = {"figures/table4_cox2_curves.svg", "figures/odd_toy_curves.svg"}
    assert figures | {"README.md", "#chains"} <= {*links}
    for link in {*links} - {"data:,"}:
        found = link[1:] in anchors if link[0] == "#" else (folder.path / unquote(link)).is_file()
        assert found, f"{link} leads nowhere"
    assert not re.search(r"https?:|//|<script|@import|url\(", page)
    assert all(re.findall(r'<img [^>]*alt="([^"]*)"', page))


def test_without_records_and_readme_the_page_is_almost_empty(results):
    results.numbers.clear()
    assert results.report() == 0
    page = (results.path / "index.html").read_text(encoding="utf-8")
    assert "Not made yet: Figure 1 (make reproduce-figure1), Table 1" in text(page)
    assert not re.search("<img|<table|<details", page)
    assert not (results.path / "claims.md").exists()


def test_nothing_in_the_inputs_is_taken_for_html(folder):
    nasty = "<img src=x onerror=alert(1)> {{ 7 * 7 }} <b>&amp;"
    folder.add("digits/row", "seed0", [0.5], label={"dataset": nasty, "method": nasty})
    (folder.path / "README.md").write_text(f"## Findings\n\n{nasty}\n\n<script>1</script>")
    assert folder.report() == 0
    page = (folder.path / "index.html").read_text(encoding="utf-8")
    assert [src for src in re.findall('<img src="?([^" ]+)', page) if "figures/" not in src] == []
    assert "<script" not in page
    assert "49" not in page.partition('<section id="digits">')[2].partition("</section>")[0]


def test_findings_stand_with_the_table_whose_label_is_the_longest(results):
    """Digits is the beginning of Digits, gradients."""
    results.add("digits/implicit", "seed0", [0.8, 0.9])
    results.add("digits_gradients/bptt", "seed0", [0.8, 0.9])
    text = "## Findings\n\n**Digits, gradients.** First.\n\n**Digits.** Second.\n"
    (results.path / "README.md").write_text(text, encoding="utf-8")
    assert results.report() == 0
    found = sections((results.path / "index.html").read_text(encoding="utf-8"))
    assert "First" in found["digits_gradients"]
    assert "First" not in found["digits"]
    assert "Second" in found["digits"]


def test_each_published_finding_names_a_table():
    """All but the last one, which is on what is missing."""
    _, _, findings = (RESULTS / "README.md").read_text(encoding="utf-8").partition("## Findings")
    names = re.findall(r"^\*\*([^*]+?)\.?\*\*", findings, flags=re.MULTILINE)
    labels = [entry.label for entry in catalogue().values()]
    assert [n for n in names if not any(n.startswith(label) for label in labels)] == ["Not run:"]
    assert len(names) > 15
