"""The training script: a run, a table, and mistakes in one line."""

import re

from train.chains import CHAINS

from phantomgrad_suite.runs.folder import RunFolder


def test_script_executes_a_run_and_skips_it_the_second_time(script):
    first, second = script(*CHAINS), script(*CHAINS)
    assert (first.code, second.code) == (0, 0)
    assert "accuracy best" in first.out
    assert "finished, skipped" in second.out


def test_table_goes_on_after_a_failed_run(script, workplace):
    """The exit code is 1, and the other rows are executed."""
    rows = "experiment=chains/implicit,chains/upg_k5_d0.5,chains/npg_k5_d0.5"
    short = ("trainer.max_epochs=2", "runtime.checkpoint.every_n_epochs=1")
    assert script("-m", rows, *short).code == 0
    records = sorted(workplace.path.glob("runs/**/record.json"))
    assert len(records) == 3
    broken, kept, lost = records
    broken.write_text("{")
    lost.unlink()
    before = kept.stat().st_mtime_ns
    outcome = script("-m", rows, *short)
    assert outcome.code == 1
    assert "is not a readable record" in outcome.out
    assert kept.stat().st_mtime_ns == before
    assert lost.exists()


def test_runs_of_other_processes_are_skipped(script, workplace):
    rows = ("-m", "experiment=chains/implicit,chains/npg_k5_d0.5", "trainer.max_epochs=1")
    assert script(*rows).code == 0
    folders = [RunFolder(path.parent) for path in workplace.path.glob("runs/**/record.json")]
    for folder in folders:
        folder.record.unlink()
    with folders[0].locked(), folders[1].locked():
        outcome = script(*rows)
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert all(re.match("chains/.* seed0-.*: skipped, another process exec", x) for x in lines)
    assert len(lines) == 2


def test_table_names_the_failed_run(script):
    """An error that several runs share is logged for the first of them."""
    rows = ("experiment=chains/implicit,chains/upg_k5_d0.5", "model.kappa=1")
    (line,) = script("-m", *rows, "seed=0,1").out.splitlines()
    assert re.match("chains/implicit seed0-.*: model cannot be built: .*kappa must lie in", line)
