"""Statistics over runs, against numbers worked out by hand."""

from dataclasses import replace

import pytest
from report.conftest import record

from phantomgrad_suite.report.experiments.runs import Runs, Stat
from phantomgrad_suite.runs.records import Result


def test_mean_and_sample_std_by_hand():
    stat = Stat.of([0.8, 0.9, 1.0])
    assert stat is not None
    assert stat.mean == pytest.approx(0.9)
    assert stat.std == pytest.approx(0.1)  # ddof 1; ddof 0 would give 0.082
    assert stat.n == 3
    assert Stat.of([0.8]) == (0.8, 0.0, 1)


def test_best_last_and_common_are_different_things():
    runs = [record("t/a", "seed0", [0.9, 0.6, 0.5]), record("t/a", "seed1", [0.4, 0.8, 0.7])]
    summary = Runs(runs)
    assert summary.best is not None
    assert summary.best.mean == pytest.approx(0.85)  # 0.9 and 0.8, at different epochs
    assert summary.last is not None
    assert summary.last.mean == pytest.approx(0.6)
    assert summary.common is not None
    assert summary.common.mean == pytest.approx(0.7)  # means by epoch: 0.65, 0.7, 0.6
    assert summary.common.std == pytest.approx(0.02**0.5)
    assert summary.common_epoch == 2
    assert summary.selected is None


def test_common_epoch_skips_epochs_some_run_lacks():
    runs = [record("t/a", "seed0", [0.5, 0.9, 0.6, 0.9]), record("t/a", "seed1", [0.5, None, 0.7])]
    assert Runs(runs).common_epoch == 3


def test_a_run_without_the_curve_means_no_common_epoch():
    runs = [record("t/a", "s0", [0.5]), record("t/a", "s1", [0.5], curves={})]
    assert Runs(runs).common is None


def test_record_says_which_end_of_an_unknown_metric_is_good():
    values = [3.0, 2.0, 2.5]
    run = record("t/a", "seed0", values, curves={"test/bits_per_word": values})
    result = Result("bits_per_word", 2.0, 2, 2.5, mode="min")
    summary = Runs([replace(run, result=result)])
    assert summary.common_epoch == 2
    assert summary.metric.heading == "bits per word ↓"
    old = Runs([replace(run, result=replace(result, mode="max"))])
    assert old.common_epoch == 1


def test_hardware_says_how_many():
    gpu = {"processor": "a CPU", "threads": 1, "accelerator": "NVIDIA H200"}
    memory = {"peak_bytes": 1, "kind": "cuda"}
    runs = [
        record("t/a", "s0", [0.5], environment={**gpu, "processes": 8}, memory=memory),
        record("t/a", "s1", [0.5], environment=gpu, memory=memory),
        record("t/a", "s2", [0.5], environment={**gpu, "accelerator": None, "processes": 4}),
    ]
    assert Runs(runs).hardware == {
        "8 x NVIDIA H200",
        "NVIDIA H200",
        "a CPU, 4 processes of 1 thread",
    }
