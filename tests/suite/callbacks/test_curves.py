"""Curves of callbacks and the history of a run, and the results picked from it."""

import math
from types import SimpleNamespace

import pytest
import torch

from phantomgrad_suite.callbacks.curves import History
from phantomgrad_suite.runs.errors import UserError

NAN = math.nan


def history_of(*epochs):
    history = History()
    for metrics in epochs:
        end_epoch(history, metrics)
    return history


def end_epoch(history, metrics, metric=None):
    """End an epoch of a task whose metric is ``metric``, or the first of a test."""
    tensors = {name: torch.tensor(value, dtype=torch.float64) for name, value in metrics.items()}
    trainer = SimpleNamespace(
        callback_metrics=tensors, check_val_every_n_epoch=1, sanity_checking=False
    )
    tested = [name.removeprefix("test/") for name in metrics if name.startswith("test/")]
    task = torch.nn.Linear(1, 1)
    task.metric = metric or (tested or ["accuracy"])[0]
    history.on_validation_epoch_end(trainer, task)
    history.on_train_epoch_end(trainer, task)


def accuracies(*values):
    return history_of(*({"test/accuracy": value} for value in values))


def validated(*epochs, metric="accuracy"):
    names = (f"test/{metric}", f"validation/{metric}", "validation/loss")
    return history_of(*(dict(zip(names, epoch, strict=True)) for epoch in epochs))


@pytest.mark.parametrize("values", [(0.5, 0.9, 0.7), (0.5, 0.9, 0.9), (NAN, 0.9, 0.3)])
def test_best_and_last_epoch(values):
    """Ties go to the earliest epoch; an epoch without a value is never the best."""
    result = accuracies(*values).result("accuracy")
    assert (result.best, result.best_epoch, result.last) == (0.9, 2, values[-1])
    assert (result.selected, result.selected_epoch) == (None, None)


@pytest.mark.parametrize(
    ("epochs", "epoch"),
    [
        pytest.param([(0.9, 0.5, 1.0), (0.6, 0.8, 1.0), (0.7, 0.7, 0.1)], 2, id="best"),
        pytest.param([(0.1, 0.8, 1.0), (0.2, 0.8, 0.5), (0.3, 0.8, 0.7)], 2, id="smaller loss"),
        pytest.param([(0.1, 0.7, 0.5), (0.2, 0.8, 0.5), (0.3, 0.8, 0.5)], 2, id="earlier"),
        pytest.param([(0.2, NAN, NAN), (0.3, 0.5, 2.0), (0.4, 0.6, 1.0)], 3, id="missing"),
        pytest.param([(0.2, 0.8, NAN), (0.3, 0.8, 2.0)], 2, id="loss is NaN"),
    ],
)
def test_selected_epoch(epochs, epoch):
    """The best epoch on validation data is selected."""
    result = validated(*epochs).result("accuracy")
    assert (result.selected, result.selected_epoch) == (epochs[epoch - 1][0], epoch)


def test_every_curve_has_a_point_for_every_epoch():
    """A metric may be missing in early epochs, and after a resumption in late ones."""
    a, b = "test/accuracy", "b"
    history = history_of({a: 1.0}, {a: 2.0, b: 3.0}, {a: 4.0})
    assert history.epochs == 3
    assert str(history.curves) == str({a: [1.0, 2.0, 4.0], b: [NAN, 3.0, NAN]})


def test_epochs_without_an_evaluation_have_no_test_value(workplace):
    """Lightning keeps the values of the last evaluation; they are of other weights."""
    record = workplace.record(
        *("experiment=chains/upg_k5_d0.5", "trainer.max_epochs=6"),
        "+trainer.check_val_every_n_epoch=3",
    )
    missing = [value is None for value in record.curves["test/accuracy"]]
    assert missing == [True, True, False] * 2
    assert None not in record.curves["train/loss"]
    assert record.result.best_epoch in (3, 6)


def test_metric_that_is_not_evaluated_ends_the_run():
    message = r"task.metric must be .* evaluated \(f1, loss\), got 'accuracy'"
    with pytest.raises(UserError, match=message):
        end_epoch(history := History(), {"test/f1": 0.5, "test/loss": 0.5}, metric="accuracy")
    assert not history.epochs


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_loss_that_is_not_finite_stops_the_run(loss):
    first = {"train/loss": 0.5, "test/accuracy": 0.5}
    history = history_of(first)
    with pytest.raises(UserError, match=rf"training loss is {loss} in epoch 2"):
        end_epoch(history, {"train/loss": loss})
    assert (history.epochs, history.curves) == (1, {name: [0.5] for name in first})
