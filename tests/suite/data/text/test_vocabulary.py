"""Words become numbers: their order, line ends, what is rare or unknown."""

from pathlib import Path

import pytest
import torch

from phantomgrad_suite.data.text.corpora import encode, number_words, read_lines
from phantomgrad_suite.runs.errors import UserError

TEXT = ["b a\u00a0a", "", "  c a \u2003 b  ", "d"]


def test_words_come_by_decreasing_frequency_then_by_first_appearance() -> None:
    """Lines end in the first word; white space of every kind separates the others."""
    assert number_words(TEXT) == {"<eos>": 0, "a": 1, "b": 2, "c": 3, "d": 4}
    assert [*number_words(["y x", "x y z <eos> z z"])] == ["<eos>", "z", "y", "x"]


def test_every_line_ends_in_eos() -> None:
    numbers = encode(number_words(TEXT), TEXT, "text")
    assert numbers.tolist() == [2, 1, 1, 0, 0, 3, 1, 2, 0, 4, 0]
    assert numbers.dtype == torch.int32


def test_rare_and_unknown_words_become_unk() -> None:
    numbers = number_words(TEXT, min_count=2)
    assert [*numbers] == ["<eos>", "a", "b", "<unk>"]  # as frequent as b, but later
    assert encode(numbers, ["a c e", "b"], "text").tolist() == [1, 3, 3, 0, 2, 0]


def test_lines_end_where_files_have_line_ends(tmp_path: Path) -> None:
    """Not at the other characters at which text may be split into lines."""
    path = tmp_path / "text"
    path.write_bytes("a b\x85c\n\nd\u2028e\n".encode())
    lines = list(read_lines(path))
    assert len(lines) == 3
    assert [len(line.split()) for line in lines] == [3, 0, 2]


def test_file_must_be_utf8(tmp_path: Path) -> None:
    path = tmp_path / "wiki.test.tokens"
    path.write_bytes(b"caf\xe9 \n")
    with pytest.raises(UserError, match=r"wiki\.test\.tokens is not UTF-8 text \(byte 0xe9"):
        list(read_lines(path))
