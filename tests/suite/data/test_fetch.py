"""Fetching: whole or not at all, never a wrong file, and the exit codes of the script."""

from __future__ import annotations

import runpy
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from graph_data import REPOSITORY, write_tu_dataset

from phantomgrad_suite.data.checksums import sha256
from phantomgrad_suite.data.graphs import fetch_tu as fetch
from phantomgrad_suite.data.graphs.fetch_tu import fetch_tu_dataset
from phantomgrad_suite.runs.errors import MissingDataError, UserError

pytestmark = pytest.mark.usefixtures("float32")


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def download(self: object) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr("torch_geometric.datasets.TUDataset.download", download)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder with a data set that has no known checksums."""
    write_tu_dataset(tmp_path / "source", "TOY", graphs=12, seed=0)
    return tmp_path / "source"


@pytest.fixture
def known(source: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, its checksums known."""
    sums = {path.name: sha256(path) for path in (source / "TOY" / "raw").iterdir()}
    monkeypatch.setattr(fetch, "_known", lambda name: sums)
    return source


def test_data_come_from_a_folder(source: Path, tmp_path: Path) -> None:
    said = fetch_tu_dataset("TOY", tmp_path / "data", source)
    raw = tmp_path / "data" / "TUDataset" / "TOY" / "raw"
    assert said == f"TOY: 12 graphs in {raw} (no checksums known)"
    names = {path.name for path in raw.iterdir()}
    assert names == {path.name for path in (source / "TOY" / "raw").iterdir()}


def test_data_may_lie_below_a_folder_of_all_data_sets(source: Path, tmp_path: Path) -> None:
    (tmp_path / "all").mkdir()
    source.rename(tmp_path / "all" / "TUDataset")
    assert "12 graphs" in fetch_tu_dataset("TOY", tmp_path / "data", tmp_path / "all")


def test_second_time_finds_them_there(known: Path, tmp_path: Path) -> None:
    assert "(checksums verified)" in fetch_tu_dataset("TOY", tmp_path / "data", known)
    shutil.rmtree(known)
    said = fetch_tu_dataset("TOY", tmp_path / "data", known)
    assert "(already there, checksums verified)" in said


def damage(raw: Path) -> None:
    path = raw / "TOY_graph_labels.txt"
    path.write_text(path.read_text().replace("-1", "1", 1))


def test_damaged_file_copies_nothing(known: Path, tmp_path: Path) -> None:
    damage(known / "TOY" / "raw")
    with pytest.raises(UserError, match=r"^TOY_graph_labels.txt in .* nothing was copied$"):
        fetch_tu_dataset("TOY", tmp_path / "data", known)
    assert not (tmp_path / "data").exists()


def test_missing_file_copies_nothing(known: Path, tmp_path: Path) -> None:
    (known / "TOY" / "raw" / "TOY_graph_indicator.txt").unlink()
    with pytest.raises(UserError, match=r"TOY_graph_indicator.txt in .* missing or damaged"):
        fetch_tu_dataset("TOY", tmp_path / "data", known)
    assert not (tmp_path / "data").exists()


def test_damage_after_the_copy_is_found(known: Path, tmp_path: Path) -> None:
    fetch_tu_dataset("TOY", tmp_path / "data", known)
    damage(tmp_path / "data" / "TUDataset" / "TOY" / "raw")
    with pytest.raises(UserError, match="delete that folder and fetch it again"):
        fetch_tu_dataset("TOY", tmp_path / "data", known)


def test_interrupted_copy_is_no_data_set(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(src: Path, dst: Path) -> None:
        Path(dst).write_text("half")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfile", full)
        with pytest.raises(OSError, match="No space left"):
            fetch_tu_dataset("TOY", tmp_path / "data", source)
    assert not (tmp_path / "data" / "TUDataset" / "TOY" / "raw").exists()
    assert "12 graphs" in fetch_tu_dataset("TOY", tmp_path / "data", source)


def test_half_a_folder_is_not_overwritten(source: Path, tmp_path: Path) -> None:
    raw = tmp_path / "data" / "TUDataset" / "TOY" / "raw"
    raw.mkdir(parents=True)
    (raw / "TOY_node_labels.txt").write_text("mine")
    with pytest.raises(UserError, match="delete that folder and fetch it again"):
        fetch_tu_dataset("TOY", tmp_path / "data", source)
    assert (raw / "TOY_node_labels.txt").read_text() == "mine"


def test_folder_without_the_data_set_is_said(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"does not hold TOY: expected .*/TOY_A.txt"):
        fetch_tu_dataset("TOY", tmp_path / "data", tmp_path / "nowhere")


def test_failed_download_names_the_way_without_network(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"OSError: no route to host.*use `--from DIR`"):
        fetch_tu_dataset("TOY", tmp_path / "data")


def test_checksums_of_the_paper_data_sets_are_known() -> None:
    for name in fetch.DEFAULT_NAMES:
        files = set(fetch._known(name))
        parts = ("A", "graph_indicator", "graph_labels", "node_labels", "node_attributes")
        assert files == {f"{name}_{part}.txt" for part in parts}


def test_real_data_have_the_known_checksums(tu_root: Path) -> None:
    for name in fetch.DEFAULT_NAMES:
        assert fetch.mismatches(name, tu_root / name / "raw") == []


# --- The script ------------------------------------------------------------------------------


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[list[str]], int]:
    monkeypatch.chdir(tmp_path)
    return runpy.run_path(str(REPOSITORY / "scripts" / "fetch_data.py"))["main"]  # type: ignore[no-any-return]


def test_script_fetches_what_is_named(
    script: Callable[[list[str]], int], source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script(["TOY", "--from", str(source)]) == 0
    assert "TOY: 12 graphs in data/TUDataset/TOY/raw" in capsys.readouterr().out


def test_script_knows_the_image_data_sets(
    script: Callable[[list[str]], int],
    jpeg_archive: Path,
    folder_root: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert script(["CIFAR10-JPEG", "--from", str(jpeg_archive)]) == 0
    assert script(["ImageNet", "--from", str(folder_root)]) == 0
    assert script(["CIFAR10", "--from", str(folder_root)]) == 1
    said = capsys.readouterr()
    assert "CIFAR10-JPEG: 60000 images in data/cifar10-jpeg (checksum" in said.out
    assert "ImageNet: 12 training" in said.out
    assert "does not hold CIFAR10: expected" in said.err


def test_script_goes_on_after_a_failure_and_says_so(
    script: Callable[[list[str]], int], source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script(["OTHER", "TOY", "--from", str(source)]) == 1
    said = capsys.readouterr()
    assert "does not hold OTHER" in said.err
    assert "TOY: 12 graphs" in said.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["TOY", "--form", "DIR"], "unknown option --form"), (["--from"], "--from needs a folder")],
)
def test_script_refuses_what_it_does_not_know(
    script: Callable[[list[str]], int],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    arguments: list[str],
    message: str,
) -> None:
    assert script(arguments) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
