"""The command: its arguments and its errors, after which nothing is changed."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_it_prints_the_table_and_where_it_is(results, capsys) -> None:
    assert results.report("table9") == 0
    out = capsys.readouterr().out
    assert out.startswith("# Table9")
    for name in ("tables/table9.md", "tables/table9.tex", "figures/table9.svg"):
        assert f"wrote {results.path / name}" in out
    drawn = {path.stem for path in (results.path / "figures").iterdir()}
    assert drawn == {"table9"}  # dots, but no curves without runs


def test_an_unknown_table_is_one_line_and_exit_code_2(results, capsys) -> None:
    assert results.report("table9", "tabel9") == 2
    captured = capsys.readouterr()
    assert captured.err == "report: there is no table tabel9: choose from table9\n"
    assert captured.out == ""
    assert not (results.path / "tables").exists()


def test_a_corrupt_record_is_one_line_and_changes_nothing(results, capsys) -> None:
    results.add("table9/toy_implicit", "seed0", [0.8])
    results.report()
    before = made(results)
    broken = results.path / "records" / "table9" / "toy_implicit" / "seed1.json"
    results.add("chains/implicit", "seed0", [0.8])
    for damage in (b"{", b'{"schema": 1}', b"\xff"):
        capsys.readouterr()
        broken.write_bytes(damage)
        assert results.report() == 1
        captured = capsys.readouterr()
        assert captured.err.count("\n") == 1
        assert str(broken) in captured.err
        assert captured.out == ""
        assert made(results) == before


def test_a_record_with_an_unusable_value_is_named(results, capsys) -> None:
    results.add("table9/toy_implicit", "seed0", [0.8])
    memory = {"peak_bytes": "much", "kind": "process"}
    wrong = results.add("table9/toy_implicit", "seed1", [0.9], memory=memory)
    assert results.report("table9") == 1
    assert capsys.readouterr().err.startswith(f"report: {wrong} lacks a value that its table needs")


def made(results) -> dict[Path, bytes]:
    """Return every file outside the records."""
    files = [path for path in results.path.rglob("*") if path.is_file()]
    return {path: path.read_bytes() for path in files if "records" not in path.parts}


def test_a_record_in_another_rows_folder_is_refused(results, capsys) -> None:
    path = results.add("table9/toy_implicit", "seed0", [0.8])
    copy = path.with_name("seed1.json")
    copy.write_bytes(path.read_bytes())
    assert results.report() == 1
    assert f"{copy} holds the record of table9/toy_implicit/seed0" in capsys.readouterr().err


def test_missing_paper_numbers_are_one_line(tmp_path, results, capsys) -> None:
    (results.path / "paper.csv").unlink()
    assert results.report() == 1
    assert "paper.csv cannot be read" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_one_line(results, capsys) -> None:
    (results.path / "tables").write_text("in the way", encoding="utf-8")
    assert results.report("table9") == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_the_script(results) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "report.py"), f"results={results.path}"]
    done = subprocess.run([*command, "none"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "report: there is no table none: choose from table9\n"
