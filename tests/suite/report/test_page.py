"""The page of all results: its sections, their order, and its links."""

import re
from itertools import pairwise
from urllib.parse import unquote

import pytest
from graph_data import REPOSITORY
from report.conftest import PUBLISHED, Folder

from phantomgrad_suite.report.catalogue import FIGURES
from phantomgrad_suite.report.command import known_tables, load
from phantomgrad_suite.report.figures import plots_of

SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="400pt" height="72pt"></svg>'
README = """\
# Results

## How to read a table

`A(5, 0.5)` is the paper's $A_{5,0.5}$.

## Findings

**Cost.** See [the numbers](README.md).

**Chains, more epochs.** They are [solved](tables/chains.md).

- In each run.

**Table 4.** With ten folds.

### More

Text.
"""


def fill(folder):
    """Write a small folder of results: the paper's numbers, runs of three tables, figures."""
    results = Folder(folder)
    cox2 = {"dataset": "COX2", "model": "IGNN", "method": "Implicit"}
    results.add("table4/cox2_implicit", "seed0", [0.8, 0.9], label=cox2)
    results.add("chains/implicit", "seed0", [0.8, 0.9])
    results.add("chains/upg", "seed0", [0.8, 0.9], label={"dataset": "Toy", "method": "UPG"})
    results.add("odd/row", "seed0", [0.8])
    files = {"README.md": README}
    for name in ("table4", "table4_curves", "chains", "odd"):
        files |= {f"figures/{name}.svg": SVG, f"figures/{name}.pdf": "%PDF"}
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return results


@pytest.fixture
def folder(tmp_path):
    return fill(tmp_path)


@pytest.fixture
def page(folder):
    return folder.page()


def overview(page):
    """Return the line of each table of the paper."""
    lines = [line for line in page.text("li") if re.search("make |python scripts/", line)]
    return {" ".join(line.split()[:2]): line for line in lines}


def test_sections_follow_the_order_of_the_paper(page):
    assert page.text("h2") == [
        "Overview",
        "Table 1: Ablation settings on CIFAR-10",
        "Table 3: DEQ and MDEQ on vision and language",
        "Table 4: IGNN on graph tasks",
        "Chains: IGNN on chains of nodes",
        "Odd",
        "Findings",
        "How to read a table",
    ]
    assert page.text("h3") == ["Cost"] * 3 + ["More"]


def test_figures_have_captions_and_alternative_texts(page):
    images = page.every("img")
    names = ["table4", "table4_curves", "chains", "odd"]  # those with files
    table4 = page.html[page.html.index('<section id="table4"') :]
    assert table4[: table4.index("<details>")].count("<img") == 1  # the others are folded
    assert [image["src"] for image in images] == [f"figures/{name}.svg" for name in names]
    assert len({image["alt"] for image in images}) == 4
    captions = page.text("figcaption")
    assert captions[0].startswith("Table 4. The means of the test metric over the runs")
    assert captions[1].startswith("Table 4. Test metric and training loss by epoch")


def test_captions_are_sentences():
    assert all(re.fullmatch(r"[A-Z].*\.", caption) for caption in FIGURES.values())


def test_links_are_local_and_lead_somewhere(folder, page):
    anchors = {attributes["id"] for _, attributes in page.tags if "id" in attributes}
    links = [a["href"] for a in page.every("a")] + [i["src"] for i in page.every("img")]
    assert {"figures/table4.pdf", "figures/odd.svg", "README.md", "#chains"} <= set(links)
    for link in links:
        found = link[1:] in anchors if link[0] == "#" else (folder.path / unquote(link)).is_file()
        assert found, f"{link} leads nowhere"
    assert not re.search(r"https?:|//|<script|@import|url\(", page.html)


def test_it_is_valid_and_accessible_html(page):
    assert page.unclosed == []
    assert page.every("html") == [{"lang": "en"}]
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(below <= above + 1 for above, below in pairwise(levels))
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    ours = [th for th in page.every("th") if "style" not in th and th]
    assert all(th.get("scope") in {"col", "row", "rowgroup"} for th in ours)
    assert page.every("a")[0] == {"class": "skip", "href": "#main"}


def test_columns_that_only_repeat_become_titles_of_groups(page):
    groups = page.text("th", scope="rowgroup")
    assert groups[0] == "CIFAR-10 · accuracy (%) ↑ · MDEQ-Tiny"
    assert "COX2 · accuracy (%) ↑ · IGNN" in groups
    assert "PPI · micro-F1 (%) ↑ · IGNN" in groups
    numbers = page.text("td", **{"class": "number paper brief"})
    assert {"84.1 ± 2.9", "97.6 ‡"} <= set(numbers)


def test_the_overview_has_state_and_command_of_each_table(page):
    lines = overview(page)
    assert len(lines) == 9
    assert "partly made 1 of 12 rows in full make reproduce-table4" in lines["Table 4"]
    assert "missing the paper's numbers only" in lines["Table 1"]
    assert "missing make reproduce-figure2" in lines["Figure 2"]
    summary = "Of the paper's 9 tables, figures and theorems, 1 is partly made, 8 are missing."
    assert summary in page.text("p")


def test_findings_come_from_the_readme(page):
    assert "Cost. See the numbers." in page.text("p")
    sections = {key: page.text("section", id=key)[0] for key in ("chains", "table4", "findings")}
    found = ("Chains, more epochs. They are solved. In each run.", "Table 4. With ten folds.")
    for key, text in zip(("chains", "table4"), found, strict=True):
        assert [name for name, content in sections.items() if text in content] == [key]
    assert "<code>A(5, 0.5)</code> is the paper's <i>A</i><sub>5,0.5</sub>" in page.html


def test_without_records_and_readme_the_page_is_almost_empty(results):
    results.numbers.clear()
    page = results.page()
    assert all("missing" in line for line in overview(page).values())
    assert page.html.count("README.md in this folder has no section of this name.") == 2
    assert page.every("img", "table") == []


def test_nothing_in_the_inputs_is_taken_for_html(folder):
    nasty = "<img src=x onerror=alert(1)> {{ 7 * 7 }} <b>&amp;"
    folder.add("digits/row", "seed0", [0.5], label={"dataset": nasty, "method": nasty})
    readme = f"## Findings\n\n{nasty}\n\n<script>1</script>"
    (folder.path / "README.md").write_text(readme)
    page = folder.page()
    assert [i for i in page.every("img") if not i["src"].startswith("figures/")] == []
    assert page.every("script") == []
    assert "49" not in " ".join(page.text("h3"))


def test_the_command_writes_the_page(folder, capsys):
    assert folder.report("chains") == 0
    assert capsys.readouterr().out.endswith(f"wrote {folder.path / 'index.html'}\n")
    assert (folder.path / "index.html").read_text(encoding="utf-8") == folder.page().html


def test_our_figures_are_those_of_our_records():
    results = REPOSITORY / "results"
    plots = [
        p
        for key in known_tables(results, PUBLISHED)
        for p in plots_of(load(results, key, PUBLISHED))
    ]
    names = sorted([*(f"{plot.name}.svg" for plot in plots), "claims.svg"])
    assert names == sorted(path.name for path in (results / "figures").glob("*.svg"))
