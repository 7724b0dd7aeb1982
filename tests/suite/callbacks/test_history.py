"""The history of a run, and the numbers picked from it."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from phantomgrad_suite.callbacks import History
from phantomgrad_suite.runs.errors import UserError

NAN = math.nan


def after(*epochs: dict[str, float]) -> History:
    """The history of epochs with these metrics."""
    history = History()
    for metrics in epochs:
        end_epoch(history, metrics)
    return history


def end_epoch(history: History, metrics: dict[str, float]) -> None:
    tensors = {name: torch.tensor(value) for name, value in metrics.items()}
    trainer: Any = SimpleNamespace(callback_metrics=tensors)
    history.on_train_epoch_end(trainer, None)  # type: ignore[arg-type]


def scored(*accuracies: float) -> History:
    return after(*({"test/accuracy": value} for value in accuracies))


def test_curves_hold_a_value_for_each_epoch() -> None:
    history = after({"a": 1.0}, {"a": 2.0, "b": 5.0}, {"a": 3.0, "b": 6.0})
    assert history.epochs == 3
    assert history.curves["a"] == [1, 2, 3]
    assert history.curves["b"][1:] == [5, 6]
    assert math.isnan(history.curves["b"][0])


def test_gap_in_a_curve_is_filled() -> None:
    history = after({"a": 1.0}, {}, {"a": 3.0})
    assert history.curves["a"][::2] == [1, 3]
    assert math.isnan(history.curves["a"][1])


def test_best_and_last_epoch() -> None:
    result = scored(0.5, 0.9, 0.7).result("accuracy")
    assert (result.best, result.best_epoch, result.last) == (pytest.approx(0.9), 2, 0.7)
    assert (result.selected, result.selected_epoch) == (None, None)


def test_tie_goes_to_the_earliest_epoch() -> None:
    assert scored(0.5, 0.9, 0.9).result("accuracy").best_epoch == 2


@pytest.mark.parametrize("values", [(NAN, 0.5, 0.9), (0.5, NAN, 0.9), (NAN, 0.9, NAN)])
def test_epoch_without_a_value_is_never_the_best(values: tuple[float, ...]) -> None:
    assert scored(*values).result("accuracy").best == pytest.approx(0.9)


def validated(*epochs: tuple[float, float, float]) -> History:
    names = ("test/accuracy", "validation/accuracy", "validation/loss")
    return after(*(dict(zip(names, epoch, strict=True)) for epoch in epochs))


def test_selected_epoch_is_the_best_on_validation_data() -> None:
    result = validated((0.9, 0.5, 1.0), (0.6, 0.8, 1.0), (0.7, 0.7, 0.1)).result("accuracy")
    assert (result.selected, result.selected_epoch) == (pytest.approx(0.6), 2)
    assert (result.best, result.best_epoch) == (pytest.approx(0.9), 1)


def test_selection_ties_go_to_the_smaller_loss_then_to_the_earlier_epoch() -> None:
    smaller = validated((0.1, 0.8, 1.0), (0.2, 0.8, 0.5), (0.3, 0.8, 0.7))
    assert smaller.result("accuracy").selected_epoch == 2
    earlier = validated((0.1, 0.7, 0.5), (0.2, 0.8, 0.5), (0.3, 0.8, 0.5))
    assert earlier.result("accuracy").selected_epoch == 2


@pytest.mark.parametrize("missing", [(0.2, NAN, NAN), (NAN, NAN, NAN)])
def test_epoch_without_validation_is_never_selected(missing: tuple[float, float, float]) -> None:
    history = validated(missing, (0.3, 0.5, 2.0), (0.4, 0.6, 1.0))
    assert history.result("accuracy").selected_epoch == 3


def perplexities(*epochs: tuple[float, float]) -> History:
    names = ("test/perplexity", "validation/perplexity", "validation/loss")
    return after(*(dict(zip(names, (*epoch, epoch[1]), strict=True)) for epoch in epochs))


def test_metric_may_be_better_the_smaller_it_is() -> None:
    """Best, selected, ties and gaps as before, from the other end."""
    history = perplexities((90.0, NAN), (30.0, 60.0), (30.0, 40.0), (50.0, 40.0), (NAN, 70.0))
    result = history.result("perplexity", "min")
    assert (result.best, result.best_epoch, result.mode) == (30, 2, "min")
    assert math.isnan(result.last)
    assert (result.selected, result.selected_epoch) == (30, 3)
    assert history.result("perplexity").best == 90


def test_run_without_evaluation_has_no_result() -> None:
    with pytest.raises(UserError, match="ended after 2 epochs without a value of test/accuracy"):
        after({"train/loss": 1.0}, {"train/loss": 0.5}).result("accuracy")


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_loss_that_is_not_finite_stops_the_run(loss: float) -> None:
    history = after({"train/loss": 0.5})
    with pytest.raises(UserError, match=rf"training loss is {loss} in epoch 2"):
        end_epoch(history, {"train/loss": loss})
    assert (history.epochs, history.curves) == (1, {"train/loss": [0.5]})


def test_history_goes_on_from_its_state() -> None:
    history, resumed = scored(0.5, 0.6), History()
    state = history.state_dict()
    resumed.load_state_dict(state)
    end_epoch(resumed, {"test/accuracy": 0.7})
    assert resumed.curves["test/accuracy"] == pytest.approx([0.5, 0.6, 0.7])
    assert resumed.epochs == 3


def test_state_is_that_of_its_moment() -> None:
    """A checkpoint written in the background must not see later epochs."""
    history = scored(0.5)
    state = history.state_dict()
    end_epoch(history, {"test/accuracy": 0.7})
    assert state == {"curves": {"test/accuracy": [0.5]}, "epochs": 1}
