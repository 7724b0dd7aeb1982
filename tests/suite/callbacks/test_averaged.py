"""Averaged weights by a callback of Lightning's: interrupted, compiled, and kept."""

import pytest
import torch
from interruptions import assert_same_run, checkpoint, interrupted

from phantomgrad_suite.released import verify

RUN = (
    *("experiment=digits/upg_k5_d0.5", "trainer.max_epochs=2", "solver.max_evaluations=3"),
    *("+trainer.limit_train_batches=3", "+trainer.limit_val_batches=1", "optimizer.lr=0.05"),
    *("runtime.callbacks.spectrum=null", "runtime.checkpoint.every_minutes=0"),
)
EMA = "+measure.ema={_target_: lightning.pytorch.callbacks.EMAWeightAveraging, decay: 0.7}"
SWA = (
    "+measure.swa={_target_: lightning.pytorch.callbacks.StochasticWeightAveraging, "
    "swa_lrs: 0.01, swa_epoch_start: 1}"
)


def test_resumed_average_is_the_uninterrupted_one(workplace, whole_runs):
    """Killed in the middle of an epoch, bit for bit."""
    whole = whole_runs.train(workplace, *RUN, EMA)
    folder = interrupted(workplace, 5, *RUN, EMA, unit="step")
    assert workplace.train(*RUN, EMA) == folder
    assert_same_run(folder, whole)
    for part in ("current_model_state", "averaging_state"):
        mine, yours = checkpoint(folder)[part], checkpoint(whole)[part]
        assert all(torch.equal(mine[name], yours[name]) for name in mine)


@pytest.mark.parametrize("callback", [EMA, SWA])
def test_kept_weights_are_those_that_were_evaluated(workplace, whole_runs, callback):
    """They give the values of the record: the one averages in evaluations, the other at the end."""
    assert verify([str(whole_runs.train(workplace, *RUN, callback))])
