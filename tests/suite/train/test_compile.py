"""Compiled solves in training runs: a circumstance, said in the record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from training import Workplace, composed

from phantomgrad_suite.jobs.compose import as_dict
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.identity import Identity

# As they were before there was anything to compile.
HASHES = {
    "chains/upg_k5_d0.5": "f280d3a91c900b4e37622c43513d89ea72151fe158c151cce7c91b789bc8be19",
    "table4/cox2_implicit": "94d36910456df07fb8244f0e5468d98f2ab68da73da85d5627554cfa57c847e0",
    "digits/npg_k5_d0.5": "fab4063ca857cab2404298adb8eb4eeec6d6037140773b7fa15bb876398cb166",
    "table1/upg_k9_d0.5": "9ee0dff3f69d8097461ba6833a0357fe8fb7a0b6394e9165ae0fab77fd28869e",
}
NARROW = (
    *("experiment=cifar10-jpeg/3epochs_upg_k5_d0.5", "trainer.max_epochs=1"),
    *("model.channels=[8,8]", "model.head_channels=[2,2]", "model.features=8"),
    *("solver.max_evaluations=3", "dataset.batch_size=4", "callbacks.spectrum=null"),
    *("+trainer.limit_train_batches=2", "+trainer.limit_val_batches=1"),
)


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize("row", HASHES)
@pytest.mark.parametrize("mode", ["null", "default"])
def test_identity_does_not_depend_on_it(row: str, mode: str) -> None:
    overrides = [f"experiment={row}", f"compile={mode}"]
    identity = Identity.of(as_dict(composed(overrides)), row, overrides[1:])
    assert (identity.config_hash, identity.changes) == (HASHES[row], ())


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_run_is_the_eager_one_and_its_record_says_so(
    workplace: Workplace, jpeg_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Curves agree in every bit where the backend runs what dynamo has seen."""
    compiler, asked = torch.compile, list[Any]()

    def eager(function: Any, **options: Any) -> Any:
        asked.append(options)
        return compiler(function, backend="eager")

    monkeypatch.setattr(torch, "compile", eager)
    here = (*NARROW, f"dataset.root={jpeg_root}")
    plain = workplace.record(*here, "paths.runs=plain")
    assert asked == []
    compiled = workplace.record(*here, "compile=default")
    assert asked == [{"mode": "default"}] * 2  # a trial, and the one layer
    assert compiled.curves == plain.curves
    assert compiled.config_hash == plain.config_hash
    assert compiled.environment["compiled"] == "solves, torch.compile mode default"
    assert "compiled" not in plain.environment


def test_mode_that_there_is_not_is_refused(workplace: Workplace) -> None:
    with pytest.raises(UserError, match=r"compile must be null, default, .* got 'fast'"):
        workplace.train("compile=fast")


def test_missing_compiler_is_said_at_the_start(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("No working C++ compiler found\nand more")

    monkeypatch.setattr(torch, "compile", broken)
    with pytest.raises(UserError, match=r"compile=default needs a compiler .*: No working C\+\+"):
        workplace.train("compile=default")
    assert not list(workplace.path.glob("runs/**/last.ckpt"))
