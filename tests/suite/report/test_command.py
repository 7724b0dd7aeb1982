"""The command: its arguments, its errors, after which nothing is changed, and your records."""

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from report.conftest import published, record

from phantomgrad_suite.released import publish
from phantomgrad_suite.report.command import main
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.records import Check, Result

ROOT = Path(__file__).parents[3]
ROW = "table9/toy_implicit"
CONFIG = record(ROW, "seed0", [0.5]).config


def test_a_corrupt_record_is_one_line_and_changes_nothing(results, capsys):
    results.add(ROW, "seed0", [0.8])
    results.report()
    before = made(results)
    broken = results.archive.file("table9/broken")
    results.add("chains/implicit", "seed0", [0.8])
    for damage in (b"{", b'{}\n{"schema": 1}', b"\xff", b"{}\n[]"):
        capsys.readouterr()
        broken.write_bytes(damage)
        assert results.report() == 1
        captured = capsys.readouterr()
        assert captured.err.count("\n") == 1
        assert str(broken) in captured.err
        assert captured.out == ""
        assert made(results) == before


def made(results):
    """Return every file outside the records."""
    files = [path for path in results.path.rglob("*") if path.is_file()]
    return {path: path.read_bytes() for path in files if "records" not in path.parts}


def test_what_cannot_be_used_is_named_in_one_line(results, capsys):
    path = results.add(ROW, "seed0", [0.8])
    copy = Path(shutil.copy(path, path.with_name("toy_other.jsonl")))
    assert results.report() == 1
    assert capsys.readouterr().err.startswith(f"report: {copy} repeats the record of {ROW}/seed0")
    assert results.report("formats=svg,gif") == 1
    assert capsys.readouterr().err == "report: formats must be svg, pdf or both, got gif\n"
    assert not (results.path / "tables").exists()


def test_a_folder_that_cannot_be_written_is_one_line(results, capsys):
    (results.path / "tables").write_text("in the way", encoding="utf-8")
    assert results.report("table9") == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_a_folder_without_records_of_yours_is_one_line_and_not_written(results, tmp_path, capsys):
    folder = tmp_path / "runs"
    folder.mkdir()
    assert results.report(f"yours={folder}") == 1
    error = capsys.readouterr().err
    assert error.startswith(f"report: {folder} has no records: yours must be a folder of your res")
    assert error.count("\n") == 1
    assert [*folder.rglob("*")] == []


def test_the_script(results):
    command = [sys.executable, str(ROOT / "scripts" / "report.py"), f"results={results.path}"]
    done = subprocess.run([*command, "none"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    known = "table1, table3, table4"  # those of the paper, whatever the folder holds
    assert done.stderr == f"report: there is no table none: choose from {known}\n"
    assert not (results.path / "tables").exists()


@pytest.fixture
def yours(results, tmp_path_factory):
    """A second folder, whose records are yours."""
    return type(results)(tmp_path_factory.mktemp("yours"))


def compare(results, yours, *names):
    assert results.report(*names, f"yours={yours.path}") == 0


def test_numbers_agree_within_the_published_spread(results, yours, capsys):
    for seed, value in enumerate([0.80, 0.84]):  # 82 ± 2.8
        results.add(ROW, f"seed{seed}", [value])
    yours.add(ROW, "seed0", [0.845])
    before = {path: path.read_bytes() for path in results.path.rglob("*") if path.is_file()}
    compare(results, yours, "table9")
    out = capsys.readouterr().out
    assert "2 of 2 numbers agree.\n" in out
    yours.add(ROW, "seed0", [0.85])
    compare(results, yours, "table9")
    out = capsys.readouterr().out
    assert "0 of 2 numbers agree" in out
    assert "table9/toy_implicit best 85.0, published 82.0 ± 2.8" in out
    page = (yours.path / "index.html").read_text()
    assert "82.0 ± 2.8" in page
    assert "<h2>Yours</h2>" in page
    assert page.index("Your runs: 0 of 2 numbers agree.") < page.index("<h2>")
    assert (yours.path / "tables/table9.md").exists()
    after = {path: path.read_bytes() for path in results.path.rglob("*") if path.is_file()}
    assert after == before  # nothing that is published changes


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"data": {"fingerprint": "sha256:bbbbbbbb"}}, "data bbbbbbbb, published aaaaaaaa"),
        ({"data": {}}, "data unknown, published aaaaaaaa"),
        ({"config_hash": "dddd"}, "other settings (configuration hash)"),
        (
            {"config": {**CONFIG, "optimizer": {"lr": 0.5}}},
            "other settings (optimizer={'lr': 0.5})",
        ),
        (
            {"result": Result.missing("accuracy", "max"), "diverged": {"step": 8}},
            "1 diverged, published 0 of these",
        ),
    ],
)
def test_numbers_of_other_data_settings_or_ends_do_not_agree(
    results, yours, capsys, changes, reason
):
    results.add(ROW, "seed0", [0.8])
    yours.add(ROW, "seed0", [0.8], **changes)
    compare(results, yours)
    assert f"0 of 2 numbers agree; others: {ROW}: {reason}." in capsys.readouterr().out


def test_a_published_run_that_diverged_is_compared(results, yours, capsys):
    lost = {"result": Result.missing("accuracy", "max"), "diverged": {"step": 8}}
    results.add(ROW, "seed0", [0.8], **lost)
    yours.add(ROW, "seed0", [0.8])
    compare(results, yours)
    reason = f"others: {ROW}: 0 diverged, published 1 of these."
    assert f"0 of 2 numbers agree; {reason}" in capsys.readouterr().out
    yours.add(ROW, "seed0", [0.8], **lost)
    yours.add(ROW, "seed1", [0.8])
    compare(results, yours)
    reason = f"others: {ROW}: published 1 run, 1 diverged."
    assert f"0 of 2 numbers agree; {reason}" in capsys.readouterr().out


def test_claims_of_studies_are_compared(results, yours, capsys):
    record = published("theorems/sgd", checks=[Check.below("error", 1.0, 2.0)])
    results.write(record)
    yours.write(replace(record, checks=[Check.below("error", 3.0, 2.0)]))
    compare(results, yours, "theorems")
    out = capsys.readouterr().out
    assert (
        "0 of 1 claims have the published verdict; others: theorems/sgd: error does not hold" in out
    )


def test_a_table_of_your_own_and_one_without_runs(results, yours, capsys):
    yours.add("mine/first", "seed0", [0.7])
    compare(results, yours)
    out = capsys.readouterr().out
    assert "Mine: None of these rows is published, so there is nothing to compare." in out
    assert "Table9: none of your runs is finished" in out


def test_a_study_of_your_own_shows_its_checks(results):
    checks = [Check.above("up", 2.0, 1.0)]
    results.write(published("figure1/tanh", row="mine/study", checks=checks))
    assert results.report() == 0
    results.add("mine/run", "seed0", [0.7])
    results.add("cpu/mine/run", "seed0", [0.6])
    assert results.report() == 0
    table = (results.path / "tables" / "mine.md").read_text(encoding="utf-8")
    assert len(re.findall(r"\b[67]0\.0\b", table)) == 4  # best and last of the runs, beside it
    assert re.search(r"\| mine/study \| up +\| +2 \| +1 \| +holds", table)


def test_publishing_copies_what_differs_and_was_made_from_a_clean_checkout(results, yours):
    with pytest.raises(UserError, match="records is not a folder: no row has been finished there"):
        publish(yours.path, results.path)
    for folder in (results, yours):
        folder.add(ROW, "seed0", [0.8])
        # Its results are NaN, which are unequal to themselves in dataclasses of Python 3.13.
        diverged = {"step": 3, "epoch": 1, "reason": "NaN"}
        folder.add(ROW, "seed9", [], diverged=diverged, result=Result.missing("accuracy", "max"))
    assert publish(yours.path, results.path) == []
    yours.add(ROW, "seed1", [0.9])
    yours.add(ROW, "seed2", [0.9], environment={"git": "abc+dirty"})
    earlier = {"git": "abc", "earlier": [{"git": "abc+dirty"}]}
    yours.add(ROW, "seed3", [0.9], environment=earlier)
    left_out = "left out, made from a changed checkout: table9/toy_implicit seed"
    assert publish(yours.path, results.path) == [
        "published: table9/toy_implicit seed1",
        *(f"{left_out}{seed}" for seed in (2, 3)),
    ]
    assert [instance for _, instance in results.archive.records] == ["seed0", "seed1", "seed9"]


def test_an_installed_suite_does_not_rebuild_the_results_in_its_package(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr("phantomgrad_suite.report.command.IS_CHECKOUT", False)
    monkeypatch.setattr("phantomgrad_suite.report.command.RESULTS", tmp_path)
    assert main([]) == 1
    assert "yours=runs/results shows your results" in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]
