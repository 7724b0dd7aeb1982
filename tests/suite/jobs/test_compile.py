"""Compiled cells in training runs: when, the same results, resumed, and without a compiler."""

from typing import Any
from unittest.mock import Mock

import pytest
import torch
from interruptions import assert_same_run, interrupted, untimed

import phantomgrad as pg
from phantomgrad_suite.callbacks import compiled

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
    plain = workplace.record(*SHORT, "runtime.paths.runs=plain", "runtime.compile=false")
    assert asked == []
    found = workplace.record(*SHORT, "runtime.compile=true")
    assert [options["mode"] for options in asked] == ["default"] * 2  # a trial, and the one layer
    assert untimed(found) == untimed(plain)
    assert found.config_hash == plain.config_hash
    assert found.environment["compiled"] == "default"
    assert plain.environment["compiled"] is None


def test_auto_compiles_nothing_that_takes_more_than_it_saves(workplace, asked, monkeypatch):
    monkeypatch.setattr(compiled, "_saved_seconds", lambda *_: 0.0)
    assert workplace.record(*SHORT).environment["compiled"] is None
    assert asked == []


@pytest.mark.parametrize(
    ("size", "side", "share"), [("tiny", 16, 0.2), ("tiny", 32, 0.0), ("large", 16, 0.0)]
)
def test_what_compilation_saves_depends_on_the_size_of_the_state(size, side, share):
    make = getattr(pg.models.MDEQ, size)
    model = make(pg.FixedPoint(max_evaluations=1), pg.UnrolledPhantomGradient(1, 1.0))
    found = []
    model.deq.register_pass_hook(lambda layer, f, z, _: found.append((layer, z)))
    with torch.no_grad():
        model(torch.zeros(1, 3, side, side))
    assert [compiled._saved_share(*each) for each in found] == [share]


def test_missing_compiler_is_a_sentence(workplace, monkeypatch, caplog):
    broken = RuntimeError("No working C++ compiler found\nand more")
    monkeypatch.setattr(torch, "compile", Mock(side_effect=broken))
    record = workplace.record(*SHORT, "runtime.compile=true")
    assert record.environment["compiled"] is None
    assert "torch.compile does not work here: No working C++ compiler found" in caplog.text


def test_resumed_run_is_compiled_from_its_first_step(workplace, monkeypatch, caplog):
    """A backend that rounds differently shows which steps were compiled."""
    compiler = torch.compile

    def rounded(graph, example):
        return lambda *arguments: [x * (1 + 1e-6) for x in graph.forward(*arguments)]

    monkeypatch.setattr(torch, "compile", lambda f, **_: compiler(f, backend=rounded))
    monkeypatch.setattr(compiled, "_saved_seconds", lambda *_: 1e6)
    caplog.set_level("INFO")
    saved = ("runtime.checkpoint.every_minutes=0", "runtime.checkpoint.every_n_epochs=1")
    here = (*SHORT, "trainer.max_epochs=2", *saved)
    whole = workplace.train(*here, "runtime.paths.runs=whole")
    (said,) = (line for line in caplog.messages if line.startswith("compiling f, which should"))
    assert int(said.split()[6]) == 5e6  # five steps are left after the first
    folder = interrupted(workplace, 3, *here, unit="step")
    assert workplace.train(*here) == folder
    assert_same_run(folder, whole)
    plain = workplace.train(*here, "runtime.compile=false", "runtime.paths.runs=plain")
    with pytest.raises(AssertionError):
        assert_same_run(folder, plain)
    assert "f was" not in caplog.text


@pytest.mark.parametrize(
    ("before", "setting", "now"), [("default", False, None), (None, True, "default")]
)
def test_run_that_is_resumed_otherwise_says_so(asked, caplog, before, setting, now):
    model = pg.models.ImageClassifier(
        1, 2, pg.FixedPoint(), pg.UnrolledPhantomGradient(2, 0.5), channels=8
    )
    model.device = torch.device("cpu")
    callback = compiled.CompiledCells(setting)
    callback.load_state_dict({"mode": before, "batches": [4]})
    callback.on_train_start(Mock(is_global_zero=True), model)
    assert callback.state_dict() == {"mode": now, "batches": [4]}
    assert len(asked) == (2 if now else 0)
    states = {"default": "compiled", None: "eager"}
    warning = f"f was {states[before]} until this run was interrupted and is {states[now]} now"
    assert warning in caplog.text
