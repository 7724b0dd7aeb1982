"""Tables of the page: which columns become headings of rows, and how the first one looks."""

from __future__ import annotations

from markupsafe import Markup

from phantomgrad_suite.report.sheet import Cell, Sheet, is_paper


def sheet(headings: str, *rows: str, words: int = 2) -> Sheet:
    """Return a table whose cells are separated by bars, the first ``words`` columns text."""
    cells = [
        tuple(Cell(Markup(text), text) for text in line.split("|")) for line in (headings, *rows)
    ]
    numeric = tuple(i >= words for i in range(len(cells[0])))
    return Sheet("caption", False, cells[0], numeric, tuple(cells[1:]))


def groups(made: Sheet) -> list[tuple[str, list[str]]]:
    return [(str(title), [row[0].text for row in rows]) for title, rows in made.groups]


def test_repeated_words_become_headings() -> None:
    made = sheet("Data|Method|Best", "A|x|1", "A|y|2", "B|x|3")
    assert groups(made) == [("A", ["x", "y"]), ("B", ["x"])]
    assert [(h.text, numeric) for h, numeric, _ in made.columns] == [
        ("Method", False),
        ("Best", True),
    ]


def test_words_that_differ_in_every_row_stay() -> None:
    made = sheet("Study|Claim|Bound", "A|x|1", "B|y|2")
    assert groups(made) == [("", ["A", "B"])]
    assert len(made.columns) == 3


def test_an_empty_cell_says_what_stands_above_it() -> None:
    made = sheet("case|quantity|ours", "A|total|1", "|memory|2", "B|total|3")
    assert groups(made) == [("A", ["total", "memory"]), ("B", ["total"])]


def test_below_a_symbol_a_value_is_named() -> None:
    made = sheet("L|κ|Method|Error", "0.9|18.7|x|1", "0.9|18.7|y|2", words=3)
    assert groups(made) == [("L = 0.9 · κ = 18.7", ["x", "y"])]


def test_tables_of_numbers_or_without_rows_are_left_alone() -> None:
    assert groups(sheet("k|NPG", "1|0.8", "2|0.9", words=0)) == [("", ["1", "2"])]
    assert groups(sheet("a|b|c")) == []


def test_the_first_column_has_the_room_it_needs() -> None:
    assert sheet("k|NPG", "1|0.8", words=0).stub == "stub short"
    assert sheet("Method|Best", "x|1", words=1).stub == "stub"
    assert sheet("Claim|Bound", f"{'long ' * 9}|1", words=1).stub == "stub long"


def test_the_columns_of_the_paper_are_known_by_their_headings() -> None:
    assert [is_paper(h) for h in ("Paper", "Speed, paper", "Speed", "Best")] == [
        True,
        True,
        False,
        False,
    ]
