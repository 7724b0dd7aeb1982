"""The cache of tensors: made once, and again when it is damaged or made from other data."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

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
    assert {path.name for path in tmp_path.glob("[!.]*")} == {"kept.pt", "source"}
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


def test_those_who_come_together_wait_for_the_first(tmp_path):
    """The first has two tenths of a second in which a second could begin."""
    made, together = [], Event()

    def make():
        made.append(1)
        together.wait(0.2) if len(made) == 1 else together.set()
        return [torch.arange(3)]

    (tmp_path / "source").touch()
    with ThreadPoolExecutor() as pool:
        calls = [
            pool.submit(cached, tmp_path / "kept.pt", [tmp_path / "source"], make) for _ in range(3)
        ]
    assert [call.result()[0].tolist() for call in calls] == [[0, 1, 2]] * 3
    assert len(made) == 1
