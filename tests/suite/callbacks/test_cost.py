"""The cost meter, with a clock that the tests set, and the time of an evaluation."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from phantomgrad import DEQ, FixedPoint, UnrolledPhantomGradient
from phantomgrad.nn import VariationalDropout
from phantomgrad_suite.callbacks import cost
from phantomgrad_suite.callbacks.capture import detached
from phantomgrad_suite.callbacks.cost import (
    CostMeter,
    EvaluationTime,
    evaluation_seconds,
)


class Run:
    """A stand-in for the Lightning module: its device, the clock, and what was logged."""

    def __init__(self):
        self.device = torch.device("cpu")
        self.now = 100.0
        self.logged = []

    def log_dict(self, values):
        self.logged.append(values)

    def epoch(self, meter, *steps):
        """Steps of these seconds, a second apart; then 10 seconds of evaluation."""
        meter.on_train_epoch_start()
        for seconds in steps:
            self.now += 1
            meter.on_train_batch_start()
            self.now += seconds
            meter.on_train_batch_end()
        self.now += 10
        meter.on_train_epoch_end(None, self)


@pytest.fixture
def run(monkeypatch):
    run = Run()
    monkeypatch.setattr(cost.time, "perf_counter", lambda: run.now)
    monkeypatch.setattr(cost.time, "process_time", lambda: run.now / 2)
    return run


def test_steps_and_epochs_add_up(run):
    """The means are over all steps and epochs; the logged values are sums over an epoch."""
    meter = CostMeter()
    assert meter.cpu_over_wall() is None
    run.epoch(meter, 9.0, 15.0)
    assert meter.cpu_over_wall() == pytest.approx(0.5)
    assert meter.means() == pytest.approx({"epoch": 36, "epoch_cpu": 18, "step_cpu": 6})
    totals = {"epoch": 36, "epoch_cpu": 18, "step_cpu": 12}
    assert run.logged == [pytest.approx({f"seconds/{name}": n for name, n in totals.items()})]
    run.epoch(meter, 11.0)
    assert meter.means()["epoch"] == pytest.approx((36 + 22) / 2)
    assert meter.means()["step_cpu"] == pytest.approx((4.5 + 7.5 + 5.5) / 3)


class Slow(nn.Module):
    """A cell that draws random numbers, and takes 3 seconds by the clock of the test."""

    def __init__(self, run):
        super().__init__()
        self.run = run

    def forward(self, z, x):
        self.run.now += 3
        torch.rand(5)
        return z / 2 + x


def test_time_of_an_evaluation_is_that_of_one_call_for_each_layer(run):
    """Of the second batch alone, after the step; the generator of the run does not advance."""
    gradient = UnrolledPhantomGradient(1, 1.0)
    layers = nn.ModuleList(DEQ(Slow(run), FixedPoint(), gradient) for _ in range(2))
    for layer in layers:
        layer.check_map = False
    logged = []
    module = layers
    module.device, module.log = run.device, lambda name, value, **_: logged.append((name, value))
    precision = SimpleNamespace(forward_context=nullcontext)
    trainer = SimpleNamespace(precision_plugin=precision, num_training_batches=2)
    states, ends = [], []
    for measured in (0, 1):
        callback, run.now = EvaluationTime(), 100.0
        torch.manual_seed(0)
        if measured:
            callback.on_train_batch_start(trainer, module, None, 1)
        for layer in layers:
            layer(torch.ones(2, 3))
        ends.append(run.now)
        callback.on_train_batch_end(trainer, module)
        callback.on_train_batch_start(trainer, module, None, 0)
        layers[0](torch.ones(2, 3))
        states.append(torch.get_rng_state())
    assert logged == [("seconds/f_cpu", 2 * 3 / 2)]
    assert ends[0] == ends[1]
    assert torch.equal(*states)


class Masked(nn.Linear):
    """A cell with a dropout mask, which is drawn once in a pass."""

    def __init__(self):
        super().__init__(3, 3)
        self.dropout = VariationalDropout(0.5)

    def forward(self, z, x):
        return torch.tanh(super().forward(self.dropout(z)) + x)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_a_compiled_evaluation_is_timed_where_a_run_compiles_f_and_compiled_no_second_time():
    calls, graphs, passes = [], [], []

    def backend(graph, _):
        graphs.append(graph)
        return lambda *arguments: (calls.append(1), graph.forward(*arguments))[1]

    layer = DEQ(Masked(), FixedPoint(max_evaluations=3), UnrolledPhantomGradient(1, 1.0))
    layer.check_map = False
    layer.compile_solve(backend=backend)
    layer.register_pass_hook(lambda _, f, z, attached: passes.append((detached(f), z)))
    layer(torch.ones(2, 3, requires_grad=True) * 2)
    before = len(graphs)
    calls.clear()
    evaluation_seconds(*passes[0])
    assert len(calls) == 2  # the first of three draws the mask, eagerly
    assert before == len(graphs) == 1
