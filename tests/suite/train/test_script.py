"""The training script: a table goes on, and names what failed in one line."""

import re


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


def test_table_names_the_failed_run(script):
    """An error that several runs share is logged for the first of them."""
    rows = ("experiment=chains/implicit,chains/upg_k5_d0.5", "model.kappa=1")
    (line,) = script("-m", *rows, "seed=0,1").out.splitlines()
    assert re.match("chains/implicit seed0-.*: model cannot be built: .*kappa must lie in", line)
