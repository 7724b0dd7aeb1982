"""Figures of a puzzle that is filled in."""

from dataclasses import replace

from report.conftest import plots, record, runs_table

from phantomgrad_suite.report.figures.plot import styled
from phantomgrad_suite.runs.records import Record


def example(name: str, **boards: list[int]) -> Record:
    curves = {f"example/{key}": board for key, board in boards.items()}
    run = record("reasoning/puzzle", "seed0", [0.5, 0.8], data={"name": name})
    return replace(run, curves={**run.curves, **curves})


def test_a_puzzle_is_filled_in_segment_by_segment() -> None:
    """Clues are bold, wrong digits red on a tinted ground."""
    clues, solution = [2, 1, 1, 1] * 4, [2, 3, 4, 5] * 4
    wrong = [*solution[:-1], 2]
    run = example("Sudoku-4x4", inputs=clues, targets=solution, segment1=wrong, segment2=solution)
    strip = plots(runs_table("reasoning", [run]))["reasoning_puzzle_example"]
    with styled():
        puzzle, first, last = strip.draw().axes
    assert puzzle.get_title("left") == "puzzle"
    assert [axes.get_title("left") for axes in (first, last)] == [
        "segment 1: 1 wrong",
        "segment 2: solved",
    ]
    assert "".join(text.get_text() for text in puzzle.texts) == "1" * 4
    assert "".join(text.get_text() for text in first.texts) == "1234" * 3 + "1231"
    assert [text.get_fontweight() for text in first.texts[:2]] == ["bold", "normal"]
    assert len({text.get_color() for text in first.texts[:-1]}) == 1
    assert first.texts[-1].get_color() != first.texts[0].get_color()
    assert [len(axes.patches) for axes in (puzzle, first, last)] == [0, 1, 0]


def test_a_maze_shows_its_walls_and_the_path_in_rows_of_panels() -> None:
    maze = [1] * 5 + [1, 3, 2, 4, 1] + [1] * 15
    solved = [5 if token == 2 else token for token in maze]
    answers = {f"segment{n}": maze if n < 7 else solved for n in range(1, 8)}
    run = example("Maze-5x5", inputs=maze, targets=solved, **answers)
    strip = plots(runs_table("reasoning", [run]))["reasoning_puzzle_example"]
    with styled():
        panels = strip.draw().axes
    assert [axes.get_visible() for axes in panels] == [True] * 8 + [False] * 4
    assert "".join(text.get_text() for text in panels[7].texts) == "S•G"
    assert [len(axes.patches) for axes in panels[:8]] == [22] + [23] * 6 + [22]


def test_a_run_without_an_example_has_no_strip() -> None:
    table = runs_table("reasoning", [record("reasoning/puzzle", "seed0", [0.5])])
    assert not [name for name in plots(table) if "example" in name]
