"""Compiled solves in training runs: the same results."""

from typing import Any

import pytest
import torch
from interruptions import untimed

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
    assert asked == [{"mode": "default"}]  # the one layer
    assert untimed(compiled) == untimed(plain)
    assert compiled.config_hash == plain.config_hash
    assert compiled.config["runtime"]["compile"] == "default"
