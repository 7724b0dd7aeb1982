"""Settings of puzzles, of their task and of its optimizer that are out of range."""

from functools import partial

import pytest
from tasks.fitting import SGD
from torch import nn

from phantomgrad_reasoners.adam_atan2 import AdamAtan2
from phantomgrad_reasoners.reasoning import Reasoning
from phantomgrad_reasoners.scaling import Scaling
from phantomgrad_reasoners.sudoku import Sudoku, SudokuExtreme
from phantomgrad_reasoners.words import Words
from phantomgrad_suite.runs.errors import MissingDataError, UserError

LINEAR = nn.Linear(1, 1)
scaling = partial(Scaling, run="reasoning/sudoku6/seed0")
optimizer = partial(AdamAtan2, LINEAR.parameters())


class Starting(nn.Linear):
    """A model for reasoning as far as its task checks it."""

    start = nn.Linear.forward


reasoning = partial(Reasoning, model=Starting(1, 1), optimizer=SGD, segments=3, averaging=None)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: reasoning(segments=0), "segments must be at least 1, got 0"),
        (lambda: reasoning(exploration=1.0), r"exploration must lie in \[0, 1\), got 1.0"),
        (lambda: reasoning(loss="hinge"), "loss must be 'softmax' or 'stablemax', got 'hinge'"),
        (lambda: reasoning(averaging=1.0), r"decay must lie in \[0, 1\), got 1.0"),
        (lambda: reasoning(evaluated_segments=[0]), "evaluated_segments must be at least 1, got 0"),
        (
            lambda: reasoning(model=LINEAR),
            r"model must have a method start\(inputs\), .* got Linear",
        ),
        (lambda: optimizer(lr=-1), "lr must be finite and not negative, got -1"),
        (lambda: optimizer(betas=(0.9, 1)), r"betas must lie in \[0, 1\), got 1"),
        (lambda: optimizer(betas=(0.9,)), r"betas must be two rates, got \(0.9,\)"),
        (lambda: optimizer(weight_decay="a"), "weight_decay must be finite.*got 'a'"),
        (lambda: scaling(starts=0), "starts must be at least 1, got 0"),
        (lambda: scaling(puzzles=0.5), "puzzles must be an integer, got 0.5"),
    ],
)
def test_settings_of_the_task_out_of_range_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (Sudoku, {"side": 5}, "dataset.side must be 4, 6 or 9, got 5"),
        (Sudoku, {"batch_size": 65, "train": 64}, "at most the 64 training puzzles, got 65"),
        (Sudoku, {"side": 4, "least_guesses": 1}, "dataset.train must be at most 0, got 1000"),
        (Sudoku, {"side": 9, "known_grids": 5}, "known_grids must be 0 for 9 x 9 boards, got 5"),
        (Sudoku, {"side": 9, "known_grids": -1}, "known_grids must be at least 0, got -1"),
        (SudokuExtreme, {"least_guesses": 1}, "for Sudoku-Extreme, got 9, 0 and 1"),
        (Words, {"group": "Z6"}, "dataset.group must be 'S3' or 'A5' or 'S5', got 'Z6'"),
        (Words, {"test_lengths": (16,)}, "dataset.test_lengths must be at least 17, got 16"),
        (Words, {"length": 2}, r"dataset.train must be at most 2\d, got 1000: no more"),
    ],
)
def test_settings_of_puzzles_out_of_range_are_refused(tmp_path, kind, settings, message):
    with pytest.raises((UserError, ValueError), match=message):
        kind(root=str(tmp_path), **settings).facts()


def test_missing_files_of_sudoku_extreme_are_named(tmp_path):
    with pytest.raises(MissingDataError, match=r"lacks .*train.csv.*: put train.csv and test.csv"):
        SudokuExtreme(root=str(tmp_path)).facts()
