"""Compiled solves in training runs: the same results."""

from typing import Any
from unittest.mock import Mock

import pytest
import torch
from interruptions import untimed

from phantomgrad_suite.runs.errors import UserError

SHORT = (
    *("experiment=digits/upg_k5_d0.5", "trainer.max_epochs=1", "solver.max_evaluations=3"),
    *("+trainer.limit_train_batches=2", "+trainer.limit_val_batches=1"),
    "runtime.callbacks.spectrum=null",
)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_compiled_run_equals_the_eager_one(workplace, monkeypatch):
    """Curves agree in every bit where the backend runs what dynamo has seen."""
    compiler, asked = torch.compile, list[Any]()

    def eager(function, **options):
        asked.append(options)
        return compiler(function, backend="eager")

    monkeypatch.setattr(torch, "compile", eager)
    plain = workplace.record(*SHORT, "runtime.paths.runs=plain")
    assert asked == []
    compiled = workplace.record(*SHORT, "runtime.compile=default")
    assert asked == [{"mode": "default"}] * 2  # a trial, and the one layer
    assert untimed(compiled) == untimed(plain)
    assert compiled.config_hash == plain.config_hash
    assert compiled.config["runtime"]["compile"] == "default"


def test_missing_compiler_is_reported_before_training(workplace, monkeypatch):
    broken = RuntimeError("No working C++ compiler found\nand more")
    monkeypatch.setattr(torch, "compile", Mock(side_effect=broken))
    with pytest.raises(UserError, match=r"compile=default does not work on cpu: No working C\+\+"):
        workplace.train("runtime.compile=default")
    assert not list(workplace.path.glob("runs/**/last.ckpt"))
