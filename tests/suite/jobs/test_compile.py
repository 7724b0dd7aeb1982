"""Compiled cells in training runs: the same results, resumed, and without a compiler."""

from typing import Any
from unittest.mock import Mock

import pytest
import torch
from interruptions import assert_same_run, interrupted, untimed

from phantomgrad_suite.callbacks.compiled import CompiledCells
from phantomgrad_suite.runs.errors import SettingError

SHORT = (
    *("experiment=digits/upg_k5_d0.5", "trainer.max_epochs=1", "solver.max_evaluations=3"),
    *("+trainer.limit_train_batches=3", "+trainer.limit_val_batches=1"),
    "runtime.callbacks.spectrum=null",
)
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")


@pytest.fixture
def asked(monkeypatch):
    """The options of every compilation, which runs what dynamo has seen eagerly."""
    compiler, found = torch.compile, list[Any]()

    def eager(function, **options):
        found.append(options)
        return compiler(function, backend="eager")

    monkeypatch.setattr(torch, "compile", eager)
    return found


def test_compiled_run_equals_the_eager_one(workplace, asked):
    plain = workplace.record(*SHORT, "runtime.paths.runs=plain")
    assert asked == []
    found = workplace.record(*SHORT, "runtime.compile=true")
    assert [options["mode"] for options in asked] == ["default"] * 2  # a trial, and the one layer
    assert untimed(found) == untimed(plain)
    assert found.config_hash == plain.config_hash
    assert found.environment["compiled"] == "default"
    assert plain.environment["compiled"] is None


def test_missing_compiler_is_a_sentence(workplace, monkeypatch, caplog):
    broken = RuntimeError("No working C++ compiler found\nand more")
    monkeypatch.setattr(torch, "compile", Mock(side_effect=broken))
    record = workplace.record(*SHORT, "runtime.compile=true")
    assert record.environment["compiled"] is None
    assert "torch.compile does not work here: No working C++ compiler found" in caplog.text


def test_resumed_run_is_compiled_from_its_first_step(workplace, monkeypatch):
    """A backend that rounds differently shows which steps were compiled."""
    compiler = torch.compile

    def rounded(graph, example):
        return lambda *arguments: [x * (1 + 1e-6) for x in graph.forward(*arguments)]

    monkeypatch.setattr(torch, "compile", lambda f, **_: compiler(f, backend=rounded))
    saved = ("runtime.checkpoint.every_minutes=0", "runtime.checkpoint.every_n_epochs=1")
    here = (*SHORT, "trainer.max_epochs=2", "runtime.compile=true", *saved)
    whole = workplace.train(*here, "runtime.paths.runs=whole")
    folder = interrupted(workplace, 3, *here, unit="step")
    assert workplace.train(*here) == folder
    assert_same_run(folder, whole)
    plain = workplace.train(*here, "runtime.compile=false", "runtime.paths.runs=plain")
    with pytest.raises(AssertionError):
        assert_same_run(folder, plain)


def test_another_setting_is_a_warning_when_a_run_is_resumed(caplog):
    before = CompiledCells(True)
    before.load_state_dict({"mode": "default", "batches": [4]})
    assert not caplog.messages
    CompiledCells(False).load_state_dict(before.state_dict())
    assert "runtime.compile was default until this run was interrupted, and is false" in caplog.text


def test_an_unknown_mode_is_refused():
    with pytest.raises(SettingError, match=r"must be true, false or one of default, .*, got auto"):
        CompiledCells("auto")
