"""Sudoku: generated boards of three sizes, and Sudoku-Extreme."""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.random import RandomState
from torch import Tensor

from phantomgrad_reasoners import boards
from phantomgrad_reasoners.boards import BOXES
from phantomgrad_reasoners.puzzles import Draw, PuzzleBatch, PuzzleData, collect, parts_of
from phantomgrad_suite.runs.errors import MissingDataError, UserError

FOLDER = "sudoku-extreme"
_COLUMNS = "source,question,answer,rating"
_DRAWN = 256  # puzzles at a time
_KNOWN = "test/known_grids"


@dataclass(kw_only=True, eq=False)
class Sudoku(PuzzleData):
    """Generated boards with one solution, from which no clue but the extra ones can be dropped.

    Tokens: 0 padding, 1 blank, d + 1 for the digit d. The rating is the number of guesses of a
    search that takes the cell with the fewest candidates. Augmentations permute digits, bands,
    rows, stacks and columns; square boxes are transposed too. The classes that a part has for its
    own are those of the solutions, in 4 x 4 (which has 2 of them) those of the puzzles.

    The evaluation set ``test/known_grids`` has further puzzles whose solutions are of classes that
    training puzzles have, but which are not equivalent to any of these.
    """

    side: int = 6  # 4, 6 or 9
    extra_clues: int = 0  # each puzzle has 0 to this many more clues than a minimal one
    least_guesses: int = 0
    known_grids: int = 0  # puzzles in test/known_grids

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_settings(0, "extra_clues", "least_guesses", "known_grids")
        self.evaluation_sets += (_KNOWN,) * bool(self.known_grids)
        if self.side not in BOXES:
            raise UserError(f"dataset.side must be 4, 6 or 9, got {self.side!r}")
        if self.side == 9 and self.known_grids:  # which hardly ever repeat
            raise UserError(
                f"dataset.known_grids must be 0 for 9 x 9 boards, got {self.known_grids}"
            )
        self.title = f"Sudoku-{self.side}x{self.side}"
        self.vocabulary, self.positions = self.side + 2, self.side**2

    def make(self) -> dict[str, list[Tensor]]:
        made = super().make()
        if self.known_grids:
            made |= collect(self._on_known_grids(*made["train"][:2]), {_KNOWN: self.known_grids})
        return made

    def _on_known_grids(self, *known: Tensor) -> Iterator[Draw]:
        trained = _classes([tokens.numpy() for tokens in known], self.side)
        for draw in self.draws(1):
            puzzles, grids = map(np.isin, _classes(draw[:2], self.side), trained)
            yield draw._replace(parts=np.where(grids & ~puzzles, _KNOWN, ""))

    def draws(self, *stream: int) -> Iterator[Draw]:
        """Yield random puzzles of all parts; a further ``stream`` has others."""
        # The same numbers in every version of numpy.
        rng = RandomState([self.seed, *stream] if stream else self.seed)
        board, owners = boards.layout(self.side), np.arange(_DRAWN)
        while True:
            grids = boards.random_grids(_DRAWN, board, rng)
            puzzles = boards.minimal_puzzles(grids, board, rng)
            puzzles = boards.add_clues(puzzles, grids, self.extra_clues, rng)
            guesses = boards.search(puzzles, owners, _DRAWN, board, most=2).guesses
            classes = (
                boards.puzzle_classes(puzzles, board)
                if self.side == 4
                else boards.grid_classes(grids, board)
            )
            kept = guesses >= self.least_guesses
            inputs, targets = (boards.digits_of(b).T[kept] + 1 for b in (puzzles, grids))
            yield Draw(inputs, targets, guesses[kept], parts_of(classes[kept]))

    def augmented(self, batch: PuzzleBatch, generator: torch.Generator) -> PuzzleBatch:
        count, side, box = len(batch.inputs), self.side, BOXES[self.side]
        rows, columns = (_shuffled_lines(count, side, band, generator) for band in box)
        cells = rows.unsqueeze(2) * side + columns.unsqueeze(1)  # (B, side, side)
        if box[0] == box[1]:
            transposed = torch.rand(count, 1, 1, generator=generator) < 0.5
            cells = torch.where(transposed, cells.mT, cells)
        digits = torch.rand(count, side, generator=generator).argsort(dim=1) + 2
        names = torch.cat([torch.tensor([[0, 1]]).expand(count, 2), digits], dim=1)
        cells, names = (t.to(batch.inputs.device) for t in (cells.flatten(1), names))
        return PuzzleBatch(*(names.gather(1, tokens.gather(1, cells)) for tokens in batch))


def _classes(tokens: Sequence[np.ndarray], side: int) -> list[np.ndarray]:
    """Return the classes of puzzles and of their solutions, from the tokens of both."""
    board = boards.layout(side)
    puzzles, grids = (boards.bits_of(t - 1) for t in tokens)
    return [boards.puzzle_classes(puzzles, board), boards.grid_classes(grids, board)]


def _shuffled_lines(count: int, side: int, band: int, generator: torch.Generator) -> Tensor:
    """Return orders of lines that keep bands of ``band`` lines together, ``(count, side)``."""
    bands = torch.rand(count, side // band, 1, generator=generator).argsort(dim=1)
    within = torch.rand(count, side // band, band, generator=generator).argsort(dim=2)
    return (bands * band + within).flatten(1)


@dataclass(kw_only=True, eq=False)
class SudokuExtreme(Sudoku):
    """Hard 9 x 9 puzzles (Wang et al., 2025): random rows of two files, for training and test.

    The rating is that of the file, the guesses of the solver tdoku. Rows that are used are solved,
    once, as a check. Validation puzzles come from train.csv, with solutions of other classes. No
    test puzzle may be equivalent to one of these or to a training puzzle, as the source promises.
    """

    side: int = 9

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.side, self.extra_clues, self.least_guesses) != (9, 0, 0):
            raise UserError(
                "dataset.side must be 9, and dataset.extra_clues and dataset.least_guesses 0, for "
                f"Sudoku-Extreme, got {self.side}, {self.extra_clues} and {self.least_guesses}"
            )
        self.title = "Sudoku-Extreme"

    @property
    def files(self) -> list[Path]:
        paths = [Path(self.root, FOLDER, f"{part}.csv") for part in ("train", "test")]
        if missing := [str(path) for path in paths if not path.exists()]:
            raise MissingDataError(
                f"Sudoku-Extreme lacks {', '.join(missing)}: put train.csv and test.csv of Wang et "
                f"al. (2025) into {Path(self.root, FOLDER)}"
            )
        return paths

    def make(self) -> dict[str, list[Tensor]]:
        train, test = (CsvPuzzles(path).draws(self.seed) for path in self.files)
        tested = (draw._replace(parts=np.full(len(draw.parts), "test")) for draw in test)
        training = (
            draw._replace(parts=np.char.replace(draw.parts, "test", "train")) for draw in train
        )
        counts = {"train": self.train, "validation": self.validation}
        made = collect(training, counts) | collect(tested, {"test": self.test})
        self._check_disjoint(made)
        return made

    def _check_disjoint(self, made: dict[str, list[Tensor]]) -> None:
        keys = {part: self._equivalent(tensors) for part, tensors in made.items()}
        known = np.concatenate([keys["train"], keys["validation"]])
        if shared := np.isin(keys["test"], known).sum():
            train, test = self.files
            raise UserError(
                f"{shared} of {self.test} test puzzles drawn from {test} are training or "
                f"validation puzzles drawn from {train}, unchanged or transformed: the files must "
                "not share puzzles"
            )

    def _equivalent(self, tensors: list[Tensor]) -> np.ndarray:
        """Return a number for each puzzle, which equivalent puzzles share."""
        chunks = zip(*(torch.split(tokens, _DRAWN) for tokens in tensors[:2]), strict=True)
        pairs = (_classes([tokens.numpy() for tokens in chunk], self.side) for chunk in chunks)
        return np.concatenate([puzzles + grids for puzzles, grids in pairs])


class CsvPuzzles:
    """The rows of a file of 9 x 9 puzzles, read in random order."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with path.open("rb") as file:
            if (header := file.readline().strip().decode(errors="replace")) != _COLUMNS:
                got = header[:80] or "an empty line"
                raise UserError(f"{path} must begin with the line {_COLUMNS}, got {got}")
            self._starts = np.cumsum([file.tell(), *map(len, file)])[:-1]
        if not len(self):
            raise UserError(f"{path} must have a line for each puzzle, got the first line alone")

    def __len__(self) -> int:
        return len(self._starts)

    def draws(self, seed: int) -> Iterator[Draw]:
        """Yield all rows; raise :class:`UserError` for one that is no puzzle."""
        order = RandomState(seed).permutation(len(self))
        with self._path.open(encoding="utf-8", errors="replace") as file:
            for rows in np.split(order, range(_DRAWN, len(order), _DRAWN)):
                lines = [(file.seek(self._starts[row]), file.readline())[1] for row in rows]
                places = [f"{self._path}, line {row + 2}:" for row in rows]
                try:
                    yield _parsed(lines, places)
                except ValueError as error:
                    raise UserError(str(error)) from error


def _parsed(lines: list[str], places: list[str]) -> Draw:
    table = [*csv.reader(lines)]
    for place, row in zip(places, table, strict=True):
        if len(row) != len(_COLUMNS.split(",")) or not row[3].isdigit():
            raise ValueError(f"{place} expected {_COLUMNS}, got {','.join(row)[:80]}")
    questions = [[ord(c) - ord("0") for c in row[1].replace(".", "0")] for row in table]
    grids = boards.solve(questions, 9, [f"{place} the question" for place in places]).first
    solutions = boards.digits_of(grids).T
    for place, row, solution in zip(places, table, solutions, strict=True):
        if row[2] != "".join(map(str, solution)):
            raise ValueError(f"{place} the answer is not the solution of the question")
    ratings = np.array([int(row[3]) for row in table])
    parts = parts_of(boards.grid_classes(grids, boards.layout(9)))
    return Draw(np.array(questions, np.uint8) + 1, solutions + 1, ratings, parts)
