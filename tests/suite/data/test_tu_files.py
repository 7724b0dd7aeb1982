"""What PyG's loader keeps of a TU data set is believed only where it is of the files there."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from graph_data import write_tu_dataset

from phantomgrad_suite.data.graphs import tu_files
from phantomgrad_suite.data.graphs.tu_files import load_tu_dataset, tu_dataset
from phantomgrad_suite.runs.errors import UserError

pytestmark = pytest.mark.usefixtures("float32")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two data sets, of 12 and of 20 graphs, their files just written."""
    write_tu_dataset(tmp_path, "ONE", graphs=12, seed=0)
    write_tu_dataset(tmp_path, "TWO", graphs=20, seed=1)
    return tmp_path


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The data sets that the loader has read from their raw files, in order."""
    from torch_geometric.datasets import TUDataset

    found, process = list[str](), TUDataset.process

    def counted(self: TUDataset) -> None:
        found.append(self.name)
        process(self)

    monkeypatch.setattr(TUDataset, "process", counted)
    return found


def test_files_are_read_once(root: Path, made: list[str]) -> None:
    first, second = load_tu_dataset("ONE", root), load_tu_dataset("ONE", root)
    assert made == ["ONE"]
    assert torch.equal(first.x, second.x)
    assert torch.equal(first.y, second.y)


def under_the_name_of_another(root: Path) -> None:
    """All that the loader has kept of TWO, with its note."""
    load_tu_dataset("TWO", root)
    shutil.rmtree(root / "ONE" / "processed")
    shutil.copytree(root / "TWO" / "processed", root / "ONE" / "processed")


def data_of_another(root: Path) -> None:
    load_tu_dataset("TWO", root)
    shutil.copyfile(root / "TWO/processed/data.pt", root / "ONE/processed/data.pt")


def without_note(root: Path) -> None:
    data_of_another(root)
    (root / "ONE/processed/source").unlink()


def truncated(root: Path) -> None:
    kept = root / "ONE/processed/data.pt"
    kept.write_bytes(kept.read_bytes()[:200])


def deleted(root: Path) -> None:
    (root / "ONE/processed/data.pt").unlink()


@pytest.mark.parametrize(
    "damage", [under_the_name_of_another, data_of_another, without_note, truncated, deleted]
)
def test_what_is_not_of_the_files_is_made_again(
    root: Path, made: list[str], damage: Callable[[Path], None]
) -> None:
    whole = load_tu_dataset("ONE", root)
    damage(root)
    again = load_tu_dataset("ONE", root)
    assert len(again) == 12
    assert torch.equal(again.x, whole.x)
    assert torch.equal(again.y, whole.y)
    assert made.count("ONE") == 2
    load_tu_dataset("ONE", root)
    assert made.count("ONE") == 2


def test_changed_file_and_other_version_count(
    root: Path, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = load_tu_dataset("ONE", root)
    labels = root / "ONE/raw/ONE_graph_labels.txt"
    labels.write_text(labels.read_text().replace("-1", "1", 1))
    assert int((load_tu_dataset("ONE", root).y != before.y).sum()) == 1
    assert made == ["ONE", "ONE"]
    monkeypatch.setattr(tu_files.importlib.metadata, "version", lambda _: "99")
    load_tu_dataset("ONE", root)
    assert made == ["ONE"] * 3


def test_folder_that_cannot_be_written_is_read(
    root: Path, made: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """A directory in the place of the lock stands for one that only others may change."""
    (root / "ONE/.lock").mkdir()
    assert len(load_tu_dataset("ONE", root)) == 12
    assert "ONE cannot be kept" in caplog.text
    assert not (root / "ONE/processed").exists()
    (root / "ONE/raw/ONE_A.txt").write_text("garbage")
    with pytest.raises(UserError, match=r"raw/ONE_A\.txt cannot be read as ONE"):
        load_tu_dataset("ONE", root)


@pytest.mark.parametrize("garbage", [b"no number\n", b"\x00\xff\xfe", b"1, 2\n3\n"])
@pytest.mark.parametrize("part", ["A", "graph_indicator", "node_labels", "graph_labels"])
def test_garbage_is_said_in_a_line(root: Path, part: str, garbage: bytes) -> None:
    (root / f"ONE/raw/ONE_{part}.txt").write_bytes(garbage)
    said = r"delete \S+/ONE/raw and fetch it again with `python scripts/fetch_data\.py ONE`$"
    with pytest.raises(UserError, match=rf"/raw/ONE_{part}\.txt .*: {said}") as error:
        load_tu_dataset("ONE", root)
    assert "\n" not in str(error.value)


def test_numbers_that_do_not_fit_are_said_in_a_line(root: Path) -> None:
    indicator = root / "ONE/raw/ONE_graph_indicator.txt"
    indicator.write_text("1\n2\n")
    with pytest.raises(UserError, match=r"/ONE/raw cannot be read as ONE \(.*: delete "):
        load_tu_dataset("ONE", root)


def test_labels_that_are_missing_are_said_in_a_line(root: Path) -> None:
    labels = root / "ONE/raw/ONE_graph_labels.txt"
    labels.write_text("\n".join(labels.read_text().split()[:7]) + "\n")
    with pytest.raises(UserError, match=r"ONE_graph_labels.txt has 7 labels of 12 graphs: delete"):
        load_tu_dataset("ONE", root)
    labels.unlink()
    with pytest.raises(UserError, match=r"ONE_graph_labels.txt has 0 labels of 12 graphs: delete"):
        load_tu_dataset("ONE", root)


def test_real_data_are_as_the_loader_makes_them(tu_root: Path) -> None:
    for name in ("COX2", "PROTEINS"):
        ours, plain = load_tu_dataset(name, tu_root), tu_dataset(name, tu_root)
        assert torch.equal(ours.x, plain.x)
