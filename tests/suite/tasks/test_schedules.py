"""Schedules: their closed forms, and that a task knows the number of steps of the run."""

import math
from functools import partial

import pytest
import torch
from tasks.fitting import QUIET, fit
from torch import nn
from torch.utils.data import DataLoader

from phantomgrad_suite.tasks import Task
from phantomgrad_suite.tasks.schedules import cosine_by_step, warmup_cosine

RATE, LEAST = 0.1, 1e-6


class Line(Task):
    """A linear model that keeps the learning rate of every step."""

    def __init__(self, **task):
        super().__init__(nn.Linear(1, 1), partial(torch.optim.SGD, lr=RATE), **task)
        self.rates = []

    def training_step(self, batch, batch_idx):
        self.rates.append(self.optimizers().param_groups[0]["lr"])
        return self.model(batch).square().mean()


def expected(step, steps):
    return LEAST + (RATE - LEAST) * (1 + math.cos(math.pi * step / steps)) / 2


@pytest.mark.usefixtures("float32")
@pytest.mark.parametrize("horizon", [None, 20])
@QUIET
def test_task_moves_on_every_step_and_knows_their_number(horizon):
    """In three epochs of four steps, the last rate is the formula's at step eleven of twelve.

    A run that is the beginning of a longer one has the rates of that one.
    """
    schedule = partial(cosine_by_step, minimum=LEAST, horizon=horizon)
    task = Line(schedule=schedule, schedule_by="step")
    fit(task, DataLoader(torch.ones(4, 1), batch_size=1), epochs=3)
    rates = [expected(step, horizon or 12) for step in range(12)]
    assert task.rates == pytest.approx(rates, rel=1e-9)


def test_warm_up_and_cosine_of_the_language_rows():
    """At the end of the warm-up the rate drops a little: the cosine runs from step 0."""
    optimizer = torch.optim.Adam([torch.zeros(1, requires_grad=True)], lr=2.5e-4)

    def rates(warmup, steps, at):
        (factor,) = warmup_cosine(optimizer, warmup=warmup, steps=steps).lr_lambdas
        return [2.5e-4 * factor(step) for step in at]

    steps = [0, 1, 8000, 15_999, 16_000, 32_000, 150_000, 300_000]
    values = [2.5e-4 / 16_000, 2.5e-4 / 16_000, 1.25e-4, 2.49984e-4, 2.4825e-4]
    values += [2.4305e-4, 1.25e-4, 0]
    assert rates(16_000, 300_000, steps) == pytest.approx(values, rel=2e-5, abs=1e-12)
    assert rates(16_000, 300_000, [300_001]) == pytest.approx([0], abs=1e-12)
    assert rates(0, 10, [0, 5]) == pytest.approx([2.5e-4, 1.25e-4])
