"""Files of the report: whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from phantomgrad_suite.report.files import write_whole


def test_content_arrives_and_folders_are_made(tmp_path: Path) -> None:
    write_whole(b"new", tmp_path / "a" / "b.md")
    assert (tmp_path / "a" / "b.md").read_bytes() == b"new"


def test_a_failing_rename_leaves_the_old_file_and_no_temporary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "table.md"
    path.write_bytes(b"old")

    def refuse(self: Path, target: Path) -> None:
        raise OSError("no")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(OSError, match="no"):
        write_whole(b"new", path)
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["table.md"]
