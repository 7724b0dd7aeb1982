"""Solver, generator and classes of Sudoku boards against slow, plain Python."""

from functools import cache
from itertools import permutations, product

import numpy as np
import pytest
from numpy.random import RandomState

from phantomgrad_reasoners import boards
from phantomgrad_reasoners.boards import BOXES


@cache
def grids4():
    """All grids of 4 x 4, from permutations and sets."""
    grids = []
    for rows in product(permutations(range(1, 5)), repeat=4):
        boxes = (rows[i][j : j + 2] + rows[i + 1][j : j + 2] for i in (0, 2) for j in (0, 2))
        if all(len(set(unit)) == 4 for unit in (*zip(*rows, strict=True), *boxes)):
            grids.append(sum(rows, ()))
    return np.array(grids)


def made(side, count, seed=0):
    """Grids and puzzles, as bits."""
    rng, board = RandomState(seed), boards.layout(side)
    grids = boards.random_grids(count, board, rng)
    return grids, boards.minimal_puzzles(grids, board, rng)


def guesses(board, side):
    """Solutions and guesses of a plain depth-first search over sets."""
    height, width = BOXES[side]
    best = None
    for cell in range(side * side):
        if board[cell] == 0:
            row, column = divmod(cell, side)
            taken = {
                board[other]
                for other in range(side * side)
                if other // side == row
                or other % side == column
                or (other // side // height, other % side // width)
                == (row // height, column // width)
            }
            options = set(range(1, side + 1)) - taken
            if best is None or len(options) < len(best[1]):
                best = cell, options
    if best is None:
        return 1, 0
    found, tried = 0, int(len(best[1]) > 1)
    for digit in best[1]:
        board[best[0]] = digit
        more = guesses(board, side)
        found, tried = found + more[0], tried + more[1]
    board[best[0]] = 0
    return found, tried


def symmetries(side):
    """The permutations of the cells that keep rows, columns and boxes, ``(G, cells)``."""

    def lines(band):
        inner = [*permutations(range(band))]
        return [
            tuple(b * band + i for b, order in zip(outer, orders, strict=True) for i in order)
            for outer in permutations(range(side // band))
            for orders in product(inner, repeat=side // band)
        ]

    height, width = BOXES[side]
    maps = [
        [r * side + c for r in rows for c in columns]
        for rows in lines(height)
        for columns in lines(width)
    ]
    if height == width:
        maps += [[i % side * side + i // side for i in cells] for cells in maps]
    return np.array(maps)


def canonical(board, maps):
    """The smallest image of a board of digits, renamed in the order in which they occur."""
    images = board[maps]
    renamed, names = np.zeros_like(images), np.zeros((len(maps), board.max() + 1), images.dtype)
    count = np.zeros(len(maps), images.dtype)
    every = np.arange(len(maps))
    for cell in range(images.shape[1]):
        digits = images[:, cell]
        new = (digits > 0) & (names[every, digits] == 0)
        count += new
        names[every[new], digits[new]] = count[new]
        renamed[:, cell] = names[every, digits]
    return min(row.tobytes() for row in renamed)


def test_search_counts_the_grids_of_4_x_4():
    board, blank = boards.layout(4), np.zeros((16, 1), np.uint16)
    found = boards.search(blank, np.arange(1), 1, board, most=1000)
    assert found.solutions.tolist() == [288] == [len(grids4())]
    assert boards.search(blank, np.arange(1), 1, board, most=2).solutions >= 2


def test_puzzles_of_4_x_4_are_unique_and_minimal():
    """Each agrees with exactly one of all grids, and without any of its clues with more."""
    every = grids4()
    solutions, puzzles = (boards.digits_of(bits).T for bits in made(4, 100))
    for puzzle, solution in zip(puzzles, solutions, strict=True):
        clues = puzzle.nonzero()[0]
        agree = every[:, clues] == puzzle[clues]
        assert (every[agree.all(axis=1)] == solution).all(axis=1).tolist() == [True]
        for i in range(len(clues)):
            assert np.delete(agree, i, axis=1).all(axis=1).sum() > 1


@pytest.mark.parametrize(("side", "count"), [(6, 30), (9, 2)])
def test_solutions_and_guesses_are_those_of_a_plain_search(side, count):
    grids, puzzles = made(side, count, seed=3)
    digits = boards.digits_of(puzzles).T.tolist()
    found = boards.solve(digits, side)
    assert (found.first == grids).all()
    plain = [guesses(board, side) for board in digits]
    assert [(1, n) for n in found.guesses] == plain
    assert max(plain) > (1, 0)


def test_extra_clues_come_from_the_solution():
    grids, puzzles = made(6, 200)
    mixed = boards.add_clues(puzzles, grids, 5, RandomState(0))
    extra = ((mixed != 0).sum(axis=0) - (puzzles != 0).sum(axis=0)).tolist()
    assert set(extra) == set(range(6))
    assert (mixed[puzzles != 0] == puzzles[puzzles != 0]).all()
    assert (mixed == np.where(mixed, grids, 0)).all()


@pytest.mark.parametrize("side", [4, 6])
def test_classes_are_those_of_canonical_forms(side):
    """Equivalent boards have one number; 4 x 4 has 2 classes of grids and 36 of puzzles."""
    board, maps = boards.layout(side), symmetries(side)
    assert len(maps) == {4: 128, 6: 3456}[side]
    grids, puzzles = made(side, 400 if side == 4 else 60)
    for states, hashes in (
        (grids, boards.grid_classes(grids, board)),
        (puzzles, boards.puzzle_classes(puzzles, board)),
    ):
        forms = [canonical(digits, maps) for digits in boards.digits_of(states).T]
        pairs = set(zip(forms, hashes.tolist(), strict=True))
        assert len(pairs) == len(set(forms))
        if side == 4:
            assert len(pairs) == len(set(hashes.tolist())) == (2 if states is grids else 36)
        else:
            assert len(set(hashes.tolist())) > 0.7 * len(set(forms))


@pytest.mark.parametrize(
    ("board", "problem"),
    [
        ([0] * 15, "board 1 must have 16 cells, got 15"),
        ([5] + [0] * 15, r"board 1 must hold digits from 0 \(blank\) to 4, got 5"),
        ([-1] + [0] * 15, r"board 1 must hold digits from 0 \(blank\) to 4, got -1"),
        ([1, 1] + [0] * 14, "board 1 must have exactly one solution, it has none"),
        ([1, 2, 3, 4] + [0] * 12, "board 1 must have exactly one solution, it has several"),
    ],
)
def test_bad_boards_are_refused(board, problem):
    with pytest.raises(ValueError, match=f"^{problem}$"):
        boards.solve([grids4()[0].tolist(), board], 4)
