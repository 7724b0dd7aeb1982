"""Settings of tasks, penalties, optimizer and averages that are out of range."""

from functools import partial

import pytest
from tasks.fitting import SGD
from torch import nn

from phantomgrad_suite.tasks import JacobianRegularisation, NodeClassification, Reasoning
from phantomgrad_suite.tasks.adam_atan2 import AdamAtan2
from phantomgrad_suite.tasks.reasoning import weight_average

LINEAR = nn.Linear(1, 1)
task = partial(NodeClassification, classes=2, model=LINEAR, optimizer=SGD)
penalty = partial(JacobianRegularisation, weight=1.0)
optimizer = partial(AdamAtan2, LINEAR.parameters())


class Starting(nn.Linear):
    """A model for reasoning as far as its task checks it."""

    start = nn.Linear.forward


reasoning = partial(Reasoning, model=Starting(1, 1), optimizer=SGD, segments=3, averaging=None)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: task(schedule_by="day"), "schedule_by must be 'epoch' or 'step', got 'day'"),
        (lambda: task(metric_mode="mean"), "metric_mode must be 'max' or 'min', got 'mean'"),
        (lambda: task(budget_jitter=-1), "budget_jitter must be at least 0, got -1"),
        (lambda: task(budget_jitter=1), "budget_jitter must be 0 where no solver has max_eval"),
        (lambda: task(jacobian=penalty()), "jacobian must be null for a model without equilib"),
        # As `+task.jacobian.weight=0.5` makes of a row without a penalty.
        (lambda: task(jacobian={"weight": 0.5}), "jacobian must be null or a complete JacobianReg"),
        (lambda: penalty(weight=-1.0), "weight must be finite and not negative, got -1.0"),
        (lambda: penalty(frequency=1.5), r"frequency must lie in \[0, 1\], got 1.5"),
        (lambda: penalty(increase=float("nan")), "increase must be a finite number, got nan"),
        (lambda: penalty(every=0), "every must be at least 1, got 0"),
        (lambda: reasoning(segments=1), "segments must be at least 2, got 1"),
        (lambda: reasoning(exploration=1.0), r"exploration must lie in \[0, 1\), got 1.0"),
        (lambda: reasoning(loss="hinge"), "loss must be 'softmax' or 'stablemax', got 'hinge'"),
        (lambda: reasoning(averaging=1.0), r"decay must lie in \[0, 1\), got 1.0"),
        (lambda: reasoning(evaluated_segments=[0]), "evaluated_segments must be at least 1, got 0"),
        (
            lambda: reasoning(model=LINEAR),
            r"model must have a method start\(inputs\), .* got Linear",
        ),
        (lambda: optimizer(lr=-1), "lr must be finite and not negative, got -1"),
        (lambda: optimizer(betas=(0.9, 1)), r"betas must lie in \[0, 1\), got 1"),
        (lambda: optimizer(betas=(0.9,)), r"betas must be two rates, got \(0.9,\)"),
        (lambda: optimizer(weight_decay="a"), "weight_decay must be finite.*got 'a'"),
        (lambda: weight_average(LINEAR, 1.0), r"decay must lie in \[0, 1\), got 1.0"),
    ],
)
def test_settings_out_of_range_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
