"""How far a piece is made, as its tables say."""

from __future__ import annotations

from pathlib import Path

import pytest
from report.pages import write

from phantomgrad_suite.report.catalogue import PAPER, TASKS, Artifact
from phantomgrad_suite.report.prose import read_document
from phantomgrad_suite.report.status import MADE, MISSING, PARTLY, Status, status_of

HEAD = "# T\n\n| Data set | Method | Params | Paper | Best |\n| - | - | -: | -: | -: |\n"
FIGURE3 = next(artifact for artifact in PAPER if artifact.key == "figure3")
THEOREMS = PAPER[-1]
ANY = Artifact("table9", "Table 9", "title", "command")


@pytest.fixture
def status(tmp_path: Path):
    def make(text: str, artifact: Artifact = ANY) -> Status:
        write(tmp_path / "page.md", text)
        return status_of(artifact, [read_document(tmp_path / "page.md", tmp_path)], drawn=False)

    return make


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("| A | x | 1K | 1 | — |\n", Status(MISSING, "the paper's numbers only")),
        ("| A | x | 1K | 1 | 2 |\n", Status(MADE)),
        ("| A | x | 1K | 1 | 2 |\n| A | y | 1K | — | — |\n", Status(MADE)),
        ("| A | x | 1K | 1 | 2 |\n| A | y | 1K | 1 | — |\n", Status(PARTLY, "1 of 2 rows in full")),
        (
            "| A | x [reduced: 1] | 1K | — | 2 |\n| A | x | 1K | 1 | — |\n",
            Status(PARTLY, "0 of 1 rows in full"),
        ),
    ],
)
def test_a_row_of_the_paper_counts_once_a_full_run_stands_in_it(status, rows, expected) -> None:
    assert status(HEAD + rows) == expected


def test_the_cost_is_no_result(status) -> None:
    cost = "\n## Cost\n\n| Method | s |\n| - | -: |\n| x | 3 |\n"
    assert status(HEAD + "| A | x | 1K | 1 | — |\n" + cost).state == MISSING


def test_other_data_than_the_papers_is_a_part(status) -> None:
    partly = Status(PARTLY, "not on CIFAR-10 yet")
    assert status(HEAD + "| COX2 | x | 1K | — | 2 |\n", FIGURE3) == partly
    assert status(HEAD + "| CIFAR-10-JPEG | x | 1K | — | 2 |\n", FIGURE3) == partly
    assert status(HEAD + "| cifar10 | x | 1K | — | 2 |\n", FIGURE3) == Status(MADE)


def test_the_page_of_a_study_is_made_once_its_parts_are_there(status) -> None:
    page = "# Theorems\n\n## Theorem 1: ascent\n\n## Theorem 2: limit\n\n"
    assert status(page, THEOREMS) == Status(PARTLY, "not Theorem 3")
    checks = "| Claim | Bound | |\n| - | -: | - |\n| x | 1 | DOES NOT HOLD |\n| y | 1 | holds |\n"
    whole = page + "## Theorem 3: SGD\n\n## Checks\n\n" + checks
    assert status(whole, THEOREMS) == Status(MADE, "1 check does not hold")


def test_without_tables_a_figure_is_enough() -> None:
    assert status_of(ANY, [], drawn=True) == Status(MADE)
    assert status_of(ANY, [], drawn=False) == Status(MISSING)


def test_each_file_belongs_to_one_piece() -> None:
    owners = {
        "figure1": "Figure 1",
        "figure1_tanh": "Figure 1",
        "figure3_digits": "Figure 3",
        "table4_honest_curves": "Table 4",
        "theorems": "Theorems 1 to 3",
        "theorem1": "Theorems 1 to 3",
        "chains_curves": "Chains",
    }
    for stem, owner in owners.items():
        assert [a.label for a in (*PAPER, *TASKS) if a.owns(stem)] == [owner]
    for stem in ("table10", "figure12", "other"):
        assert not any(a.owns(stem) for a in (*PAPER, *TASKS))
