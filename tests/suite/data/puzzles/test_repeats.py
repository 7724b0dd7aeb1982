"""Training puzzles that an epoch has several times."""

from pathlib import Path
from typing import Any

import pytest
import torch

from phantomgrad_suite.data import Sudoku
from phantomgrad_suite.runs.errors import UserError

SMALL: dict[str, Any] = {"batch_size": 8, "train": 40, "validation": 12, "test": 12}


def test_repeated_puzzles_are_the_same_ones_more_often_in_an_epoch(tmp_path: Path) -> None:
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
