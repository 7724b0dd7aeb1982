"""A NaN or infinite gradient ends the run before the optimizer step, with a record."""

import logging
import math
import re
from types import SimpleNamespace

import pytest
import torch
from interruptions import assert_same_run, checkpoint
from torch import nn

from phantomgrad_suite.checkpoint.finite import Diverged, FiniteSteps
from phantomgrad_suite.released import verify
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.records import read_record

DIGITS = (
    "experiment=digits/upg_k5_d0.5",
    "trainer.max_epochs=1",
    "dataset.batch_size=216",  # five steps
    "runtime.checkpoint.every_n_epochs=1",
    "runtime.checkpoint.every_minutes=0",
)
POISON = "+runtime.callbacks.poison={_target_: interruptions.Poison, step: 4}"


def test_a_diverged_run_is_recorded_and_can_be_resumed(workplace, caplog):
    caplog.set_level(logging.INFO)
    whole = workplace.train(*DIGITS, "runtime.paths.runs=whole")
    before = workplace.record(*DIGITS, "+trainer.limit_train_batches=3")
    folder = workplace.train(*DIGITS, POISON)
    assert "delete its record.json and add +runtime.trainer.detect_anomaly" in caplog.messages[-1]
    record = read_record(folder / "record.json")
    assert (record.diverged["step"], record.diverged["epoch"]) == (3, 1)
    assert record.diverged["loss"] == pytest.approx(before.curves["train/loss"][0])
    reason = r"the gradient of step 4 \(epoch 1\) is not finite in .* and \d+ more"
    assert re.fullmatch(reason, record.diverged["reason"])
    assert math.isnan(record.result.best)
    assert (record.result.mode, record.curves, record.weights) == ("max", {}, {})
    workplace.train(*DIGITS, POISON)
    assert ": diverged, skipped (" in caplog.messages[-1]
    with pytest.raises(UserError, match="has no weights: it diverged"):
        verify([str(folder)])
    (folder / "record.json").unlink()
    with pytest.raises(RuntimeError, match=r"Function '\w+' returned nan values"):
        workplace.train(*DIGITS, POISON, "+runtime.trainer.detect_anomaly=true")
    assert "resuming from" in caplog.text
    assert checkpoint(folder)["global_step"] == 3
    assert_same_run(workplace.train(*DIGITS), whole)


@pytest.mark.parametrize(
    ("precision", "entry", "stops"),
    [
        ("32-true", 3e38, False),  # the norm of the gradient is not finite
        ("bf16-mixed", math.inf, True),
        ("16-mixed", math.inf, False),  # the gradient scaler skips the step
    ],
)
def test_gradient_that_is_not_finite(precision, entry, stops):
    layer = nn.Linear(2, 2, dtype=torch.float32)
    layer.weight.grad = torch.full((2, 2), entry, dtype=torch.float32)
    trainer = SimpleNamespace(precision=precision, global_step=4, current_epoch=0)
    if not stops:
        FiniteSteps().on_before_optimizer_step(trainer, layer, None)
        return
    with pytest.raises(Diverged, match=r"of step 5 \(epoch 1\) is not finite in weight$"):
        FiniteSteps().on_before_optimizer_step(trainer, layer, None)
