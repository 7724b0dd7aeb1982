"""The weights that a finished run keeps give the test values of its record."""

import hashlib
from dataclasses import replace

import pytest
from graph_data import REPOSITORY
from interruptions import checkpoint, interrupted
from train.test_language import JR, run_of
from training import Script

from phantomgrad_suite.released import verify
from phantomgrad_suite.runs.records import read_record, write_record
from phantomgrad_suite.show import describe

# The best validation value is that of epoch 8.
CHAINS = (
    *("experiment=chains/upg_k5_d0.5", "seed=1", "optimizer.lr=0.3", "trainer.max_epochs=10"),
    "runtime.checkpoint.every_n_epochs=8",
)


def test_recorded_values_are_reproduced(workplace, monkeypatch, capsys):
    """Those of a resumed run, whose selected epoch is before the interruption."""
    whole = workplace.train(*CHAINS, "runtime.paths.runs=whole")
    folder = interrupted(workplace, 10, *CHAINS)
    assert checkpoint(folder)["epoch"] == 7
    assert not (folder / "weights").exists()
    assert workplace.train(*CHAINS) == folder
    record = read_record(folder / "record.json")
    assert record.weights == read_record(whole / "record.json").weights  # the checksums, too
    assert {name: kept["epoch"] for name, kept in record.weights.items()} == {
        "last": 10,
        "selected": 8,
    }
    for kept in record.weights.values():
        assert hashlib.sha256((folder / kept["file"]).read_bytes()).hexdigest() == kept["sha256"]
    assert "file: weights/selected.pt" in describe(folder)
    assert record.result.selected != record.result.last
    verification = Script(monkeypatch, capsys, REPOSITORY / "scripts" / "verify.py", ())
    outcome = verification(str(folder))
    assert outcome.code == 0, outcome.err
    for name in ("selected", "last"):
        value = f"{getattr(record.result, name):.8g}"
        (line,) = (line for line in outcome.out.splitlines() if f", {name} acc" in line)
        assert line.endswith(f"recorded {value}, recomputed {value}")
    other = replace(record, result=replace(record.result, selected=record.result.last))
    write_record(other, folder / "record.json")
    outcome = verification(str(folder))
    assert outcome.code == 1
    assert [line.endswith(": they differ") for line in outcome.out.splitlines()] == [False, True]


@pytest.mark.filterwarnings("ignore::phantomgrad.AdjointWarning")
@pytest.mark.parametrize("epochs", [2, 3])
def test_evaluation_knows_of_pretraining(workplace, text_root, epochs, capsys):
    """The second epoch of seven steps is the last of pretraining, evaluated without a solver."""
    pretraining = ("task.pretraining_steps=15", f"trainer.max_epochs={epochs}")
    folder = workplace.train(*run_of(text_root, *JR), *pretraining)
    assert verify([str(folder)]), capsys.readouterr().out
