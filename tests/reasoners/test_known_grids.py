"""The second test set of Sudoku, on grids that training has; puzzles repeated in an epoch."""

import pytest
import torch

from phantomgrad_reasoners import boards
from phantomgrad_reasoners.sudoku import Sudoku
from phantomgrad_suite.runs.errors import UserError

SMALL = {"batch_size": 8, "train": 40, "validation": 12, "test": 12}
KNOWN = "test/known_grids"


def classes(tensors, side):
    board = boards.layout(side)
    puzzles, grids = (boards.bits_of(tokens.numpy() - 1) for tokens in tensors[:2])
    return (
        set(boards.puzzle_classes(puzzles, board).tolist()),
        set(boards.grid_classes(grids, board).tolist()),
    )


@pytest.mark.parametrize(("side", "more"), [(4, {"extra_clues": 3}), (6, {"least_guesses": 1})])
def test_grids_are_known_and_puzzles_are_new(tmp_path, side, more):
    """The parts that were there before are the same, with and without it."""
    plain = Sudoku(root=str(tmp_path), side=side, **more, **SMALL)
    data = Sudoku(root=str(tmp_path), side=side, known_grids=30, **more, **SMALL)
    assert plain.evaluation_sets == ("test", "validation")
    assert data.evaluation_sets == ("test", "validation", KNOWN)
    for name, part in plain.parts.items():
        assert all(map(torch.equal, part.tensors, data.parts[name].tensors))
    assert data.facts()[KNOWN] == len(data.parts[KNOWN]) == 30
    assert data.facts()["fingerprint"] != plain.facts()["fingerprint"]
    puzzles, grids = classes(data.parts[KNOWN].tensors, side)
    trained_puzzles, trained_grids = classes(data.parts["train"].tensors, side)
    assert not puzzles & trained_puzzles
    assert grids <= trained_grids
    if side == 6:
        assert not grids & classes(data.parts["test"].tensors, side)[1]
    inputs, targets, guesses = data.parts[KNOWN].tensors
    solution = boards.solve((inputs - 1).tolist(), side).first
    assert (targets.numpy() == boards.digits_of(solution).T + 1).all()
    assert int(guesses.min()) >= more.get("least_guesses", 0)


def test_repeated_puzzles_are_the_same_ones_more_often_in_an_epoch(tmp_path):
    once, often = (Sudoku(root=str(tmp_path), extra_clues=4, repeats=n, **SMALL) for n in (1, 3))
    assert once.facts() == often.facts()
    batches = [*often.loader("train")]
    assert len(batches) == 3 * len(once.loader("train"))
    seen, counts = torch.cat([b.inputs for b in batches]).unique(dim=0, return_counts=True)
    assert (len(seen), counts.tolist()) == (SMALL["train"], [3] * SMALL["train"])
    assert len(often.loader("test").dataset) == SMALL["test"]
    assert Sudoku(root=str(tmp_path), extra_clues=4, repeats=2, **SMALL | {"batch_size": 80})
    with pytest.raises(UserError, match=r"dataset\.batch_size must be at most .*, got 81"):
        Sudoku(root=str(tmp_path), extra_clues=4, repeats=2, **SMALL | {"batch_size": 81})
