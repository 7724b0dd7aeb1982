"""The cache of tensors: made once, and again when it is damaged or made from other data."""

import pytest
import torch

from phantomgrad_suite.data.sources import cached


def load(folder, made):
    def make():
        made.append(1)
        return [torch.arange(1000), torch.zeros(3, dtype=torch.uint8)]

    source = folder / "source"
    if not source.exists():
        source.touch()
    return cached(folder / "kept.pt", [source], make)


@pytest.mark.parametrize("damage", ["a bit", "the end", "source"])
def test_tensors_are_made_once_unless_the_file_is_damaged_or_outdated(tmp_path, caplog, damage):
    made = []
    first, second = load(tmp_path, made), load(tmp_path, made)
    assert all(map(torch.equal, first, second))
    assert (len(made), caplog.text) == (1, "")
    assert {path.name for path in tmp_path.iterdir()} == {"kept.pt", "source"}
    path = tmp_path / "kept.pt"
    content = bytearray(path.read_bytes())
    if damage == "a bit":
        content[len(content) // 2] ^= 1
    elif damage == "the end":
        del content[len(content) // 2 :]
    else:
        (tmp_path / "source").write_text("changed")
    path.write_bytes(content)
    assert load(tmp_path, made)[0].sum() == 499500
    assert f"{path} is damaged or made from other data" in caplog.text
    caplog.clear()
    load(tmp_path, made)
    assert (len(made), caplog.text) == (2, "")
