"""Sudoku boards by bit masks, many at a time: solving, grading, generating, classes.

N boards are a matrix ``(cells, N)``, in which a digit is one bit and a blank cell is zero.
"""

from collections.abc import Sequence
from functools import cache
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.random import RandomState

BOXES = {4: (2, 2), 6: (2, 3), 9: (3, 3)}  # rows and columns of a box, by the side of the board
_AT_ONCE = 512  # partial boards in a step of the search; more are slower


class Layout(NamedTuple):
    """The rows, columns and boxes of a board."""

    side: int
    units: np.ndarray  # the cells of each row, column and box, (3 side, side)
    owners: np.ndarray  # the row, column and box of each cell, (3, cells)


class Search(NamedTuple):
    """What a search has found out about each of N boards."""

    solutions: np.ndarray  # how many
    guesses: np.ndarray  # cells in which it had to try several digits
    first: np.ndarray  # a solution, (cells, N)


@cache
def layout(side: int) -> Layout:
    """Return the layout of a board of 4 x 4, 6 x 6 or 9 x 9 cells."""
    height, width = BOXES[side]
    rows, columns = np.divmod(np.arange(side * side), side)
    boxes = rows // height * (side // width) + columns // width
    owners = np.stack([rows, side + columns, 2 * side + boxes])
    units = np.stack([(owners == unit).any(axis=0).nonzero()[0] for unit in range(3 * side)])
    return Layout(side, units, owners)


def solve(boards: Sequence[Sequence[int]], side: int, names: Sequence[str] = ()) -> Search:
    """Solve boards of digits, 0 in blank cells, each of which must have exactly one solution.

    Raises:
        ValueError: another size, a digit out of range, no solution or several. Errors call the
            boards by their ``names``.
    """
    names = names or [f"board {i}" for i in range(len(boards))]
    for name, board in zip(names, boards, strict=True):
        if len(board) != side**2:
            raise ValueError(f"{name} must have {side**2} cells, got {len(board)}")
        if wrong := [digit for digit in board if not 0 <= digit <= side]:
            raise ValueError(f"{name} must hold digits from 0 (blank) to {side}, got {wrong[0]}")
    found = search(bits_of(np.array(boards)), np.arange(len(boards)), len(boards), layout(side), 2)
    for name, solutions in zip(names, found.solutions, strict=True):
        if solutions != 1:
            count = "several" if solutions else "none"
            raise ValueError(f"{name} must have exactly one solution, it has {count}")
    return found


def search(states: np.ndarray, owners: np.ndarray, count: int, board: Layout, most: int) -> Search:
    """Search depth-first for up to ``most`` solutions of each of ``count`` owners of boards.

    It fills the first of the cells with the fewest candidates. A tree is searched to its end unless
    ``most`` solutions are found, so the order of the search does not change the guesses.
    """
    solutions, guesses = np.zeros((2, count), np.int64)
    first = np.zeros((len(states), count), np.uint16)
    while owners.size:
        waiting, states = np.split(states, [max(0, len(owners) - _AT_ONCE)], axis=1)
        others, owners = np.split(owners, [waiting.shape[1]])
        options, possible = candidates(states, board)
        full = possible & (states != 0).all(axis=0)
        solutions += np.bincount(owners[full], minlength=count)
        first[:, owners[full]] = states[:, full]
        going = (possible & ~full & (solutions[owners] < most)).nonzero()[0]
        states, options, owners = states[:, going], options[:, going], owners[going]
        states, cells, forced = _fill(states, options)
        guessed = (~forced).nonzero()[0]
        guesses += np.bincount(owners[guessed], minlength=count)
        at = cells[guessed]
        tried, parents = children(states[:, guessed], at, options[at, guessed], board)
        states = np.concatenate([waiting, tried, states[:, forced]], axis=1)
        owners = np.concatenate([others, owners[guessed][parents], owners[forced]])
    return Search(solutions, guesses, first)


def candidates(states: np.ndarray, board: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Return the digits that fit each blank cell, and which boards have no contradiction yet."""
    members = states[board.units]
    used = np.bitwise_or.reduce(members, axis=1)
    repeated = (members.sum(axis=1, dtype=np.uint16) != used).any(axis=0)
    free = ~np.bitwise_or.reduce(used[board.owners], axis=0) & np.uint16((1 << board.side) - 1)
    options = np.where(states == 0, free, np.uint16(0))
    return options, ~repeated & ~((states == 0) & (options == 0)).any(axis=0)


def children(
    states: np.ndarray, cells: np.ndarray, options: np.ndarray, board: Layout
) -> tuple[np.ndarray, np.ndarray]:
    """Return each board with each of its ``options`` in its cell, and the boards' numbers."""
    digits, parents = (options >> np.arange(board.side, dtype=np.uint16)[:, None] & 1).nonzero()
    tried = states[:, parents]
    tried[cells[parents], np.arange(len(parents))] = 1 << digits
    return tried, parents


def _fill(states: np.ndarray, options: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return boards with all forced cells filled, a cell with fewest options, and if any was."""
    counts = _COUNTS[options]
    forced = counts == 1
    cells = np.where(counts, counts, 99).argmin(axis=0)
    return np.where(forced, options, states), cells, forced.any(axis=0)


def random_grids(count: int, board: Layout, rng: RandomState) -> np.ndarray:
    """Return full grids, ``(cells, count)``: boards filled at random until enough succeed."""
    done = np.zeros((board.side**2, 0), np.uint16)
    while done.shape[1] < count:
        states = np.zeros((board.side**2, count), np.uint16)
        while not states.all():
            options, possible = candidates(states, board)
            states, cells, forced = _fill(states[:, possible], options[:, possible])
            open_ = (~forced & ~states.all(axis=0)).nonzero()[0]
            at = cells[open_], open_
            fits = options[:, possible][at] >> np.arange(board.side)[:, None] & 1
            states[at] = 1 << (rng.random_sample(fits.shape) * fits).argmax(axis=0)
        done = np.concatenate([done, states[:, candidates(states, board)[1]]], axis=1)
    return done[:, :count]


def minimal_puzzles(grids: np.ndarray, board: Layout, rng: RandomState) -> np.ndarray:
    """Blank cells in random order, except where another digit has a solution too."""
    puzzles, every = grids.copy(), np.arange(grids.shape[1])
    for cells in rng.random_sample(grids.shape).argsort(axis=0):
        digits = puzzles[cells, every]
        puzzles[cells, every] = 0
        others = candidates(puzzles, board)[0][cells, every] & ~digits
        tried, owners = children(puzzles, cells, others, board)
        several = search(tried, owners, len(every), board, most=1).solutions
        puzzles[cells, every] = np.where(several, digits, 0)
    return puzzles


def add_clues(puzzles: np.ndarray, grids: np.ndarray, most: int, rng: RandomState) -> np.ndarray:
    """Return puzzles with 0 to ``most`` further clues, each number with equal probability."""
    keys = np.where(puzzles == 0, rng.random_sample(puzzles.shape), 2)
    extra = rng.randint(most + 1, size=puzzles.shape[1])
    return np.where(keys.argsort(axis=0).argsort(axis=0) < extra, grids, puzzles)


def grid_classes(grids: np.ndarray, board: Layout) -> np.ndarray:
    """Return a number for each full grid that its augmentations share, and few other grids do.

    It is a hash of the cycle types of the permutations that turn one row, or column, into another.
    """
    digits = digits_of(grids).astype(np.int64).reshape(board.side, board.side, -1) - 1
    total = np.zeros(digits.shape[2], np.uint64)
    for lines, band in zip((digits, digits.swapaxes(0, 1)), BOXES[board.side], strict=True):
        hashes = np.zeros_like(total)
        for i, j in combinations(range(board.side), 2):
            image = np.empty_like(lines[i])
            np.put_along_axis(image, lines[i], lines[j], axis=0)
            power, code = image, np.full(len(total), i // band == j // band, np.uint64)
            for _ in range(board.side):  # the fixed points of its powers determine its cycle type
                fixed = (power == np.arange(board.side)[:, None]).sum(axis=0, dtype=np.uint64)
                code = code * np.uint64(16) + fixed
                power = np.take_along_axis(image, power, axis=0)
            hashes += _hash(code)
        total += _hash(hashes)
    return total


def puzzle_classes(puzzles: np.ndarray, board: Layout) -> np.ndarray:
    """Return a number for each puzzle that its augmentations share, by colour refinement."""
    colours: np.ndarray = (puzzles != 0).astype(np.uint64)
    for _ in range(3):
        row, column, box = _hash(_hash(colours)[board.units].sum(axis=1))[board.owners]
        colours = _hash(colours) + _hash(row + column) + _hash(box + np.uint64(1))
        same = puzzles & puzzles[:, None] != 0  # (cells, cells, N)
        colours += _hash(np.where(same, colours, np.uint64(0)).sum(axis=1))
    total: np.ndarray = _hash(colours).sum(axis=0)
    return total


def bits_of(boards: np.ndarray) -> np.ndarray:
    """Return boards of digits, ``(N, cells)``, as bits, ``(cells, N)``."""
    return np.take(_BITS, boards.T)


def digits_of(states: np.ndarray) -> np.ndarray:
    """Return the digits of bits, 0 for blank cells."""
    return np.take(_DIGITS, states)


def _hash(values: np.ndarray) -> np.ndarray:
    """Return 64-bit hashes of integers (the mixing function of splitmix64)."""
    values = (values + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    hashes: np.ndarray = values ^ (values >> np.uint64(31))
    return hashes


_COUNTS = np.array([mask.bit_count() for mask in range(512)], np.uint8)
_BITS = np.array([1 << digit >> 1 for digit in range(10)], np.uint16)
_DIGITS = np.array([mask.bit_length() for mask in range(512)], np.uint8)
