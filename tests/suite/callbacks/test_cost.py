"""The cost meter adds up what it is told; the clock is ours."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from phantomgrad_suite.callbacks import CostMeter
from phantomgrad_suite.callbacks.cost import peak_memory


class Clock:
    """A clock that only moves when told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("phantomgrad_suite.callbacks.cost.time.perf_counter", clock)
    monkeypatch.setattr("phantomgrad_suite.callbacks.cost.time.process_time", lambda: clock.now / 2)
    return clock


class Module:
    """A stand-in for the Lightning module: a device, and what was logged."""

    def __init__(self) -> None:
        self.device = torch.device("cpu")
        self.logged: list[dict[str, float]] = []

    def log_dict(self, values: dict[str, float]) -> None:
        self.logged.append(values)


def epoch(
    meter: CostMeter, clock: Clock, module: Any, steps: list[tuple[float, float, float]]
) -> None:
    """An epoch of steps with these seconds of forward, backward and the rest, then 10 seconds."""
    meter.on_train_epoch_start(None, module)  # type: ignore[arg-type]
    for forward, backward, rest in steps:
        clock.now += 1  # between the steps: nobody's
        meter.on_train_batch_start(None, module, None, 0)  # type: ignore[arg-type]
        clock.now += forward
        meter.on_before_backward(None, module, torch.zeros(()))  # type: ignore[arg-type]
        clock.now += backward
        meter.on_after_backward(None, module)  # type: ignore[arg-type]
        clock.now += rest
        meter.on_train_batch_end(None, module, None, None, 0)  # type: ignore[arg-type]
    clock.now += 10  # evaluation
    meter.on_train_epoch_end(None, module)  # type: ignore[arg-type]


def test_phases_of_a_step_add_up(clock: Clock) -> None:
    meter, module = CostMeter(), Module()
    epoch(meter, clock, module, [(2.0, 3.0, 4.0), (4.0, 5.0, 6.0)])
    assert meter.means() == pytest.approx(
        {"forward": 3, "backward": 4, "step": 12, "epoch": 36, "epoch_cpu": 18}
    )
    assert module.logged == [
        pytest.approx(
            {
                "seconds/forward": 6,
                "seconds/backward": 8,
                "seconds/step": 24,
                "seconds/epoch": 36,
                "seconds/epoch_cpu": 18,
            }
        )
    ]


def test_means_are_over_all_steps_and_epochs(clock: Clock) -> None:
    meter, module = CostMeter(), Module()
    epoch(meter, clock, module, [(1.0, 1.0, 1.0)])
    epoch(meter, clock, module, [(2.0, 1.0, 1.0), (3.0, 1.0, 1.0)])
    means = meter.means()
    assert means["forward"] == pytest.approx(2)
    assert means["step"] == pytest.approx(4)
    assert means["epoch"] == pytest.approx(((1 + 3 + 10) + (2 + 4 + 5 + 10)) / 2)


def test_totals_survive_an_interruption(clock: Clock) -> None:
    whole, first, module = CostMeter(), CostMeter(), Module()
    for meter in (whole, first):
        epoch(meter, clock, module, [(1.0, 2.0, 3.0)])
    second = CostMeter()
    second.load_state_dict(first.state_dict())
    for meter in (whole, second):
        epoch(meter, clock, module, [(5.0, 6.0, 7.0)])
    assert second.means() == pytest.approx(whole.means())


def test_seconds_before_an_interruption_are_kept(clock: Clock) -> None:
    first = CostMeter()
    clock.now += 30
    second = CostMeter()
    second.load_state_dict(first.state_dict())
    clock.now += 5
    third = CostMeter()
    third.load_state_dict(second.state_dict())
    assert (first.earlier, second.earlier, third.earlier) == (0, 30, 35)


def test_accelerator_is_not_waited_for_within_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events bracket the phases; they are read once, at the end of the epoch."""
    waits: list[str] = []

    class Event:
        def __init__(self, *, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            pass

        def synchronize(self) -> None:
            waits.append("wait")

        def elapsed_time(self, other: Event) -> float:
            return 1500.0

    monkeypatch.setattr(torch.cuda, "Event", Event)
    meter, module = CostMeter(), Module()
    module.device = torch.device("cuda")
    meter.on_train_epoch_start(None, module)  # type: ignore[arg-type]
    meter.on_train_batch_start(None, module, None, 0)  # type: ignore[arg-type]
    meter.on_before_backward(None, module, torch.zeros(()))  # type: ignore[arg-type]
    meter.on_after_backward(None, module)  # type: ignore[arg-type]
    meter.on_train_batch_end(None, module, None, None, 0)  # type: ignore[arg-type]
    assert waits == []
    meter.on_train_epoch_end(None, module)  # type: ignore[arg-type]
    assert waits
    assert meter.means()["forward"] == pytest.approx(1.5)


def test_peak_memory_of_the_process_is_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system keeps no peak that can be forgotten."""
    monkeypatch.setattr("phantomgrad_suite.callbacks.cost._STATUS", Path("nowhere"))
    usage = SimpleNamespace(ru_maxrss=2000)
    monkeypatch.setattr("phantomgrad_suite.callbacks.cost.resource.getrusage", lambda who: usage)
    for system, expected in (("linux", 2_048_000), ("darwin", 2000)):
        monkeypatch.setattr("phantomgrad_suite.callbacks.cost.sys.platform", system)
        assert peak_memory(torch.device("cpu")) == {"kind": "process", "peak_bytes": expected}


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux alone can forget")
def test_a_run_does_not_inherit_the_peak_of_the_one_before() -> None:
    """A tensor of 200 MB that is gone when the next run starts."""
    before = torch.ones(50_000_000)
    first = peak_memory(before.device)["peak_bytes"]
    device = before.device
    del before
    CostMeter().on_fit_start(None, SimpleNamespace(device=device))  # type: ignore[arg-type]
    assert peak_memory(device)["peak_bytes"] < first - 150_000_000


def test_peak_memory_of_an_accelerator_is_its_allocators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 123)
    assert peak_memory(torch.device("cuda")) == {"kind": "cuda", "peak_bytes": 123}
