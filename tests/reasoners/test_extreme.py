"""Sudoku-Extreme: read, checked; and bad files."""

import numpy as np
import pytest
import torch
from numpy.random import RandomState

from phantomgrad_reasoners import boards
from phantomgrad_reasoners.sudoku import SudokuExtreme
from phantomgrad_suite.runs.errors import UserError

HEADER = "source,question,answer,rating"


def text(digits):
    return "".join(map(str, digits)).replace("0", ".")


@pytest.fixture(scope="module")
def rows():
    """Questions and answers of easy puzzles, which are fast to make."""
    rng, board = RandomState(0), boards.layout(9)
    grids = boards.random_grids(60, board, rng)
    shown = rng.random_sample(grids.shape) < 0.75
    found = boards.search(np.where(shown, grids, 0), np.arange(60), 60, board, most=2)
    pairs = (boards.digits_of(states).T for states in (np.where(shown, grids, 0), grids))
    good = found.solutions == 1
    assert good.sum() > 50
    return [(text(q), text(a)) for q, a, ok in zip(*pairs, good, strict=True) if ok]


@pytest.fixture
def source(rows, tmp_path):
    folder = tmp_path / "source" / "sudoku-extreme"
    folder.mkdir(parents=True)
    for name, part in (("train", rows[:40]), ("test", rows[40:])):
        lines = [f'"a, b",{q},{a},{i}' for i, (q, a) in enumerate(part)]
        (folder / f"{name}.csv").write_text("\n".join([HEADER, *lines, ""]))
    return tmp_path / "source"


def load(root):
    return SudokuExtreme(root=str(root), batch_size=4, train=12, validation=3, test=9)


def test_files_are_read(source, rows):
    data, solutions = load(source), dict(rows)
    for part, known in (("train", rows[:40]), ("validation", rows[:40]), ("test", rows[40:])):
        inputs, answers, ratings = data.parts[part].tensors
        for question, answer, rating in zip(inputs - 1, answers - 1, ratings, strict=True):
            assert solutions[text(question.tolist())] == text(answer.tolist())
            assert known[int(rating)][0] == text(question.tolist())
    assert data.facts().items() >= {"train": 12, "validation": 3, "test": 9}.items()
    states = {n: boards.bits_of(p.tensors[1].numpy() - 1) for n, p in data.parts.items()}
    classes = {n: set(boards.grid_classes(s, boards.layout(9))) for n, s in states.items()}
    assert not classes["train"] & classes["validation"]
    (source / "sudoku-extreme" / "train.csv").touch()
    assert all(map(torch.equal, load(source).parts["test"].tensors, data.parts["test"].tensors))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda q, a: ("." * 81, a), "must have exactly one solution, it has several"),
        (lambda q, a: (q, a[::-1]), "the answer is not the solution of the question"),
        (lambda q, a: (q, a + ",1"), "expected source,question,answer,rating, got a,"),
    ],
)
def test_bad_rows_are_refused(source, change, problem):
    path = source / "sudoku-extreme" / "train.csv"
    lines = path.read_text().splitlines()
    question, answer = lines[7].split(",")[2:4]
    lines[7] = ",".join(["a", *change(question, answer), "1"])
    path.write_text("\n".join([*lines, ""]))
    with pytest.raises(UserError, match=f"train.csv, line 8: .*{problem}"):
        load(source).facts()


def test_too_few_puzzles_are_explained(source):
    with pytest.raises(UserError, match=r"dataset\.train must be at most \d\d, got 1000"):
        SudokuExtreme(root=str(source)).facts()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("question,answer\n", f"test.csv must begin with the line {HEADER}, got question,answer"),
        ("", f"test.csv must begin with the line {HEADER}, got an empty line"),
        (f"{HEADER}\n", "test.csv must have a line for each puzzle, got the first line alone"),
    ],
)
def test_files_without_puzzles_are_refused(source, text, problem):
    (source / "sudoku-extreme" / "test.csv").write_text(text)
    with pytest.raises(UserError, match=problem):
        load(source).facts()


def transformed(puzzle):
    """Transpose a puzzle, and exchange its digits."""
    columns = "".join(puzzle[i::9] for i in range(9))
    return columns.translate(str.maketrans("123456789", "987654321"))


@pytest.mark.parametrize("change", [str, transformed])
def test_training_puzzles_are_no_test_puzzles(source, change):
    train, test = (source / "sudoku-extreme" / f"{part}.csv" for part in ("train", "test"))
    rows = [line.split(",") for line in train.read_text().splitlines()]
    lines = [",".join([*a, change(q), change(s), r]) for *a, q, s, r in rows[1:]]
    test.write_text("\n".join([HEADER, *lines, ""]))
    match = (
        rf"^\d of 9 test puzzles drawn from {test} are .* drawn from {train}, unchanged or trans"
    )
    with pytest.raises(UserError, match=match):
        load(source).facts()
