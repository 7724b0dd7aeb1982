"""The puzzle whose answers enter the record."""

from types import SimpleNamespace

import torch
from torch import nn

from phantomgrad.models import Answer
from phantomgrad_reasoners.example import Example
from phantomgrad_reasoners.puzzles import PuzzleSet

INPUTS = torch.tensor([[1, 2], [1, 3], [1, 2], [1, 4]])
TARGETS = torch.tensor([[2, 2], [3, 3], [5, 2], [4, 4]])


class Counting(nn.Module):
    """Solves each puzzle after as many segments as its row is given."""

    def __init__(self, needed):
        super().__init__()
        self.needed = torch.tensor(needed)

    def forward(self, tokens, state):
        done = (torch.zeros(len(tokens), 1, 1) if state is None else state) + 1
        answer = torch.where(done[:, 0] >= self.needed[:, None], TARGETS, 0)
        return Answer(nn.functional.one_hot(answer, 6).float(), done[:, 0, 0], done)


def shown(needed):
    data = SimpleNamespace(parts={"test": PuzzleSet(INPUTS, TARGETS, torch.zeros(4))})
    task = SimpleNamespace(evaluated=Counting(needed), device="cpu")
    example = Example(segments=3)
    for _ in range(2):  # a resumed run may end twice
        example.on_train_end(SimpleNamespace(datamodule=data), task)
    return example.curves


def test_it_is_the_puzzle_that_takes_longest_to_be_solved():
    """Row 1 is solved sooner, row 3 never."""
    assert shown([1, 2, 3, 4]) == {
        "example/inputs": [1, 2],
        "example/targets": [5, 2],
        "example/segment1": [0, 0],
        "example/segment2": [0, 0],
        "example/segment3": [5, 2],
    }


def test_a_puzzle_that_is_solved_at_once_comes_before_one_that_never_is():
    assert shown([4, 1, 4, 4])["example/segment3"] == [3, 3]


def test_without_a_solved_puzzle_it_is_the_first():
    curves = shown([4, 4, 4, 4])
    assert (curves["example/targets"], curves["example/segment3"]) == ([2, 2], [0, 0])
