"""Mazes with exactly one path between any two cells: spanning trees of a grid."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.random import RandomState

from phantomgrad_suite.data.puzzles.base import Draw, PuzzleBatch, PuzzleData, parts_of
from phantomgrad_suite.runs.boards import FREE, GOAL, PATH, START, WALL
from phantomgrad_suite.runs.errors import UserError

_DRAWN = 256  # mazes at a time


@dataclass(kw_only=True, eq=False)
class Maze(PuzzleData):
    """Mazes of ``side`` x ``side`` tokens; the target is the maze with its path drawn in.

    Tokens: 0 padding, 1 wall, 2 free, 3 start, 4 goal, 5 path. The rating is the length of the
    path, drawn from ``shortest`` to ``longest``, in steps. Mazes that are rotated or mirrored
    images of each other belong to the same part.
    """

    side: int = 11  # odd: walls stand at even rows and columns
    shortest: int = 5
    longest: int = 40

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_settings(5, "side")
        self.check_settings(1, "shortest")
        self.check_settings(self.shortest, "longest")
        if self.side % 2 == 0:
            raise UserError(f"dataset.side must be odd, got {self.side}")
        self.title, self.vocabulary = f"Maze-{self.side}x{self.side}", 6
        self.positions = self.side**2
        cells = torch.arange(self.positions).view(self.side, self.side)
        turned = [view.rot90(i) for view in (cells, cells.T) for i in range(4)]
        self._views = torch.stack(turned).flatten(1)  # the symmetries of the square, (8, L)

    def draws(self) -> Iterator[Draw]:
        rng = RandomState(self.seed)
        weights = RandomState(0).randint(2**62, size=self.positions).astype(np.uint64)
        while True:
            made = [make_maze(self.side, self.shortest, self.longest, rng) for _ in range(_DRAWN)]
            found = [maze for maze in made if maze]
            inputs = np.array([maze for maze, _ in found], np.uint8).reshape(-1, self.positions)
            targets = np.array([solved for _, solved in found], np.uint8).reshape(inputs.shape)
            hashes = (inputs[:, self._views.numpy()] * weights).sum(axis=2)
            lengths = (targets == PATH).sum(axis=1) + 1
            yield Draw(inputs, targets, lengths, parts_of(hashes.min(axis=1)))

    def augmented(self, batch: PuzzleBatch, generator: torch.Generator) -> PuzzleBatch:
        chosen = torch.randint(8, (len(batch.inputs),), generator=generator)
        cells = self._views[chosen].to(batch.inputs.device)
        return PuzzleBatch(*(tokens.gather(1, cells) for tokens in batch))


def make_maze(
    side: int, shortest: int, longest: int, rng: RandomState
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return a maze, by random depth-first search, and its solution.

    Start and length of the path are drawn; ``None`` if no cell is at that distance.
    """
    maze = np.full(side * side, WALL, np.uint8)
    closed = {row * side + column for row in range(1, side, 2) for column in range(1, side, 2)}
    steps = (1, -1, side, -side)
    stack = [side + 1]
    closed.remove(stack[0])
    while stack:
        here = stack[-1]
        if ways := [step for step in steps if here + 2 * step in closed]:
            step = ways[rng.randint(len(ways))]
            stack.append(here + 2 * step)
            closed.remove(stack[-1])
            maze[[here, here + step, here + 2 * step]] = FREE
        else:
            stack.pop()
    free = (maze == FREE).nonzero()[0]
    start, length = int(free[rng.randint(len(free))]), rng.randint(shortest, longest + 1)
    before, order = {start: (0, 0)}, [start]  # the cell before each, and the distance
    for cell in order:
        for new in (cell + step for step in steps):
            if maze[new] == FREE and new not in before:
                before[new] = (cell, before[cell][1] + 1)
                order.append(new)
    goals = [cell for cell in order if before[cell][1] == length]
    if not goals:
        return None
    goal = cell = goals[rng.randint(len(goals))]
    solved = maze.copy()
    while cell != start:
        solved[cell], cell = PATH, before[cell][0]
    maze[[start, goal]] = solved[[start, goal]] = START, GOAL
    return maze, solved
