"""A run of the benchmark: its files, what it refuses, and an epoch as the sum of its phases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from bench.sides import CPU, needs_peer

from phantomgrad_suite.bench import Options, peer, run
from phantomgrad_suite.bench.contest import MEMORY, OURS, PEER
from phantomgrad_suite.bench.epochs import as_epoch_table, epoch_costs
from phantomgrad_suite.runs.errors import UserError

pytestmark = [
    pytest.mark.usefixtures("float32"),  # as the benchmark runs
    pytest.mark.filterwarnings("ignore:.*Profiler.*"),
]


# The whole run ------------------------------------------------------------------------------


@pytest.fixture
def _threads() -> object:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@needs_peer
@pytest.mark.usefixtures("_threads")
def test_a_quick_run_writes_data_and_table(tmp_path: Path) -> None:
    """Of one case; whatever is no full run does not overwrite one."""
    run(Options(device="cpu", quick=True, only="fixed point", output=str(tmp_path)))
    assert {p.name for p in tmp_path.iterdir()} == {
        "cpu-quick-fixed-point.json",
        "cpu-quick-fixed-point.md",
    }
    data = json.loads((tmp_path / "cpu-quick-fixed-point.json").read_text())
    assert data["device"] == "cpu"
    assert data["torchdeq"] == peer.version()
    assert data["environment"]["threads"] == 1
    (case,) = data["cases"]
    assert case["contenders"][OURS]["evaluations"] == case["contenders"][PEER]["evaluations"]
    assert len(case["contenders"][OURS]["seconds"]["total"]["samples"]) == 2
    assert case["times_less"][PEER][MEMORY]["ratio_of_medians"] > 0
    assert [aim["quantity"] for aim in case["aims"]] == ["outside f", "total"]
    assert "| fixed point (512, 128)" in (tmp_path / "cpu-quick-fixed-point.md").read_text()


@pytest.mark.usefixtures("_threads")
def test_a_run_without_the_peer_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It measures ours alone, under a name of its own."""
    monkeypatch.setattr(peer, "version", lambda: None)
    run(Options(device="cpu", quick=True, only="fixed point", output=str(tmp_path)))
    assert "pip install -e '.[bench]' in the checkout" in caplog.text
    assert (tmp_path / "cpu-quick-fixed-point-alone.json").exists()


@pytest.mark.usefixtures("_threads")
def test_several_threads_have_files_of_their_own(tmp_path: Path) -> None:
    """And cases are found whatever their capitals."""
    run(Options(device="cpu", quick=True, only="FIXED", threads=2, output=str(tmp_path)))
    names = sorted(p.name for p in tmp_path.iterdir() if p.suffix == ".json")
    alone = "" if peer.version() else "-alone"
    assert names == [f"cpu-2threads-quick-fixed{alone}.json"]
    assert json.loads((tmp_path / names[0]).read_text())["clock"] == "wall clock"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "tpu"}, "device must be auto, cpu or cuda, got 'tpu'"),
        ({"device": "cpu", "only": "Newton"}, "no case has 'Newton' in its name; there are"),
    ],
)
def test_what_is_not_there_is_named(options: dict[str, str], message: str, tmp_path: Path) -> None:
    """In one line, before anything is measured."""
    with pytest.raises(UserError, match=message):
        run(Options(output=str(tmp_path), **options))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"repeats": 0}, "repeats must be at least 1, got 0"),
        ({"threads": 0}, "threads must be at least 1, got 0"),
        ({"seconds": -1.0}, "seconds must not be negative, got -1.0"),
    ],
)
def test_a_refused_option_is_named(options: dict[str, float], message: str) -> None:
    """By the constructor, as everywhere."""
    with pytest.raises(ValueError, match=message):
        Options(**options)


# Epochs -------------------------------------------------------------------------------------


def test_an_epoch_is_the_sum_of_its_phases(small_tu: Path) -> None:
    """Every gradient is trained; phases add up; implicit alone has an adjoint solve."""
    costs = epoch_costs(small_tu, epochs=1, device=CPU)
    assert len(costs) == 3
    for cost in costs:
        phases = {k: v for k, v in cost.seconds.items() if k != "epoch"}
        assert set(phases) == {"forward", "backward", "update", "test"}
        assert cost.seconds["epoch"] == pytest.approx(sum(phases.values()))
        assert cost.evaluations["forward"] >= 2
        assert ("adjoint" in cost.evaluations) == (cost.gradient == "implicit")
    assert as_epoch_table(costs).count("\n") == 4
