"""Collapse: its signs on made-up curves, its warning, and a run that collapses."""

import logging
import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from phantomgrad_suite.callbacks import Collapse
from phantomgrad_suite.callbacks.curves import History
from phantomgrad_suite.runs.errors import UserError

NAN = math.nan
F1 = "validation/micro_f1"
KINDS = {"train/loss": "collapse/loss", F1: "collapse/metric"}


def signs(name, values, **options):
    """Return the signs in one curve."""
    found = Collapse(patience=2).signs({name: values}, F1, **options)
    own = found.pop(KINDS.get(name, "collapse/solves"))
    assert not any(found.values())
    return own


LEARNT = {"constant": 0.4}
FALLS = {"constant": 900.0, "sense": -1}


@pytest.mark.parametrize(
    ("name", "values", "options", "sign"),
    [
        ("train/loss", [7.0, 0.3, 0.4, 9, 8.4], {}, "from 0.3 (epoch 2) to 8.4 (since epoch 4)"),
        (F1, [0.2, 0.9, 0.7, 0.52, 0.4], LEARNT, "from 0.9 (epoch 2) to 0.4 (since epoch 4)"),
        (F1, [0.9, NAN, 0.4, NAN, 0.4, NAN], LEARNT, "from 0.9 (epoch 1) to 0.4 (since epoch 3)"),
        (F1, [900.0, 30.0, 850.0, 880.0], FALLS, "from 30 (epoch 2) to 880 (since epoch 3)"),
        ("solver/converged", [1.0, 0.9, 0.4, 0.2], {}, "from 1 (epoch 1) to 0.2 (since epoch 3)"),
        ("adjoint/converged", [0.4, 0.2], {}, "to 0.2 (since epoch 1)"),
    ],
)
def test_signs(name, values, options, sign):
    assert signs(name, values, **options) == [f"{name} went {sign}"]


@pytest.mark.parametrize(
    ("name", "values", "options"),
    [
        ("train/loss", [], {}),
        ("train/loss", [0.5, 0.3, 9.0], {}),  # not yet for two epochs
        ("train/loss", [0.5, 0.3, 2.9, 2.9], {}),  # less than ten times
        ("train/loss", [9.0, 9.0], {}),  # never smaller
        (F1, [0.2, 0.9, 0.7, 0.53, 0.53], LEARNT),  # keeps a quarter
        (F1, [0.9, 0.4, 0.4], {}),  # no constant predictor
        (F1, [0.41, 0.39, 0.2, 0.2], LEARNT),  # never learnt
        ("solver/converged", [1.0, 0.4, 0.6], {}),  # converges again
    ],
)
def test_no_signs(name, values, options):
    assert signs(name, values, **options) == []


class Module(nn.Module):
    """A stand-in for the Lightning module."""

    metric, metric_mode = "micro_f1", "max"

    def __init__(self, *evaluation_sets):
        super().__init__()
        self.evaluation_sets = evaluation_sets or ("test", "validation")


def go(callback, epochs, module=None):
    """The end of every epoch as the callback sees it."""
    module, history = module or Module(), History()
    trainer = SimpleNamespace(
        sanity_checking=False,
        callbacks=[history, callback],
        datamodule=SimpleNamespace(constant_score={"test": 0.4, "validation": 0.3}.get),
        is_global_zero=True,
    )
    for metrics in epochs:
        trainer.callback_metrics = {k: torch.tensor(v) for k, v in metrics.items()}
        history.on_validation_epoch_end(trainer, module)
        history.on_train_epoch_end(trainer, module)
        callback.on_train_epoch_end(trainer, module)


EPOCHS = [
    {"train/loss": value, "solver/converged": 1.0, "test/micro_f1": 0.9}
    for value in (5.0, 0.3, 9.0, 8.4, 8.0, 0.3)
]


def test_warning_names_the_sign_and_what_to_look_at(caplog):
    callback = Collapse(patience=2)
    with caplog.at_level(logging.WARNING):
        go(callback, [*EPOCHS, *EPOCHS])
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == (
        "training collapsed: train/loss went from 0.3 (epoch 2) to 8.4 (since epoch 3). Look at "
        "the solves, the norms of W and the learning rate"
    )
    curves = callback.curves
    assert curves["collapse/loss"] == [0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 0]
    assert set(curves) == {"collapse/loss", "collapse/metric", "collapse/solves"}


def test_metric_is_watched_on_validation_data_if_there_are_any(caplog):
    """It is compared with the constant predictor of the same set."""
    falls = [{"train/loss": 1.0, "test/micro_f1": v, F1: 0.9} for v in (0.9, 0.41, 0.41)]
    go(Collapse(patience=2), falls)
    assert not caplog.records
    go(Collapse(patience=2), falls, Module("test"))
    assert "test/micro_f1 went from 0.9 (epoch 1) to 0.41 (since epoch 2)" in caplog.text


def test_each_sign_warns_once_also_after_a_restart(caplog):
    first, second = Collapse(patience=2), Collapse(patience=2)
    go(first, EPOCHS[:4])
    second.load_state_dict(first.state_dict())
    assert len(caplog.records) == 1
    go(second, [{**epoch, "solver/converged": 0.0} for epoch in EPOCHS])
    assert len(caplog.records) == 2
    assert "solver/converged" in caplog.records[1].getMessage()
    assert "train/loss" not in caplog.records[1].getMessage()


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"loss_factor": NAN}, "loss_factor must be above 1, got nan"),
        ({"kept": 1.0}, r"kept must lie in \[0, 1\), got 1.0"),
    ],
)
def test_bad_settings_are_refused(bad, message):
    with pytest.raises(ValueError, match=message):
        Collapse(**bad)


ABSURD = (
    *(
        "experiment=table4/ppi_upg_k5_d0.5",
        "scale=cpu",
        "dataset.scale=0.005",
        "model.channels=[8]",
    ),
    *("schedule=multistep", "schedule.milestones=[3]", "schedule.gamma=1e6"),
    *("trainer.max_epochs=5", "measure.collapse.patience=2"),
)


def test_absurd_learning_rate_collapses(workplace, caplog):
    """From the fourth epoch on the rate is multiplied by a million; the run goes on to its end."""
    record = workplace.record(*ABSURD)
    assert len(record.curves["train/loss"]) == 5
    assert record.curves["collapse/loss"] == [0, 0, 0, 0, 1]
    (line,) = [m for m in caplog.messages if m.startswith("training collapsed")]
    assert "(since epoch 4)" in line


def test_collapse_may_stop_the_run():
    with pytest.raises(UserError, match=r"training collapsed: train/loss .*ends the run here\)$"):
        go(Collapse(patience=2, stop=True), EPOCHS)
