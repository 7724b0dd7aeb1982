"""Settings of tasks, and penalties that are out of range."""

from functools import partial

import pytest
from tasks.fitting import SGD
from torch import nn

from phantomgrad_suite.tasks import JacobianRegularisation, NodeClassification

LINEAR = nn.Linear(1, 1)
task = partial(NodeClassification, classes=2, model=LINEAR, optimizer=SGD)
penalty = partial(JacobianRegularisation, weight=1.0)


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
        (lambda: penalty(every=0), "every must be at least 1, or a share .*, got 0"),
    ],
)
def test_settings_out_of_range_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
