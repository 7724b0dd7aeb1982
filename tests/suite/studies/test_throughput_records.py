"""Throughput: what a study records. Nothing is timed here."""

import pytest
import torch
from studies.test_throughput import CPU, IMPLICIT, NPG, ROWS, UPG, Ticking
from torch import nn

from phantomgrad import DEQ, FixedPoint, UnrolledPhantomGradient
from phantomgrad_suite.runs.archive import Archive
from phantomgrad_suite.studies import Findings, Throughput
from phantomgrad_suite.studies.throughput import TrainingStep, evaluations

in_float32 = pytest.mark.usefixtures("float32", "hydra_restore_singletons")


def test_a_solve_lasts_until_its_slowest_sample():
    solver = FixedPoint(max_evaluations=9, tol=0)
    layer = DEQ(nn.Linear(3, 3), solver, UnrolledPhantomGradient(1, 0.5))
    _, solution = layer(z0=torch.ones(2, 3))
    layer.last_solution = solution._replace(evaluations=torch.tensor([5, 8]))
    assert evaluations([layer]) == {"forward": {"mean": 8, "budget": 9}}


@in_float32
def test_what_is_recorded(monkeypatch):
    """With a clock that moves by a second whenever it is read, every phase takes a second.

    Rows take turns; they are compared with the first one, or with a baseline of their own.
    """

    turns = []
    measure = TrainingStep.measure
    monkeypatch.setattr(TrainingStep, "measure", lambda s: (turns.append(s.name), measure(s)))
    monkeypatch.setattr("phantomgrad_suite.studies.throughput.Clock", Ticking)
    monkeypatch.setattr("phantomgrad_suite.studies.throughput.peak_bytes", lambda run, device: 640)
    study = Throughput(
        rows=ROWS,
        batch_size=1,
        batch_sizes={UPG: 2},
        baselines={NPG: "table1/elsewhere"},
        warmup=1,
        repeats=2,
    )
    rows = {row["row"]: row for row in study.measure(0, CPU).numbers["rows"]}
    assert turns == [*ROWS, *ROWS]
    implicit, upg, npg = rows.values()
    assert (implicit["batch"], implicit["own_batch"], implicit["effective_batch"]) == (1, 128, 128)
    assert upg["seconds"]["step"]["samples"] == [3, 3]
    assert upg["per_second"] == pytest.approx(2 / 3)
    # Two images in the time of one: twice as fast, sample by sample.
    assert upg["faster"] == {"step": 2, "forward": 2, "backward": 2}
    assert (upg["baseline"], implicit["baseline"], npg["baseline"]) == (IMPLICIT, None, None)
    assert implicit["evaluations"] == {
        "forward": {"mean": 23, "budget": 23},
        "adjoint": {"mean": 23, "budget": 23},
    }
    assert npg["evaluations"] == {"forward": {"mean": 23, "budget": 23}}
    assert upg["in_f"] == {"step": 3, "forward": 1, "backward": 1, "update": 1}
    assert upg["label"]["method"] == "UPG A(5, 0.5)"
    assert (upg["peak_bytes"], upg["parameters"]) == (640, 158_986)


@in_float32
def test_each_list_of_rows_has_a_record_of_its_own(study_script, workplace, monkeypatch):
    """It is named by rows and device; a run with other settings is not among the results."""
    measured = []

    def measure(study, *_):
        measured.append(study)
        return Findings({"clock": "none", "rows": []})

    monkeypatch.setattr(Throughput, "measure", measure)
    for rows in ("table1/implicit,table1/sgd", "table3/cifar10_upg"):
        assert study_script("study=throughput", f"rows=[{rows}]").code == 0
    assert study_script("study=throughput", "setting.batch_size=2").code == 0
    records = Archive(workplace.path / "runs/results/records").records
    first = "throughput/cpu/table1/implicit/table1/sgd", "seed0"
    assert records.keys() == {first, ("throughput/cpu/table3/cifar10_upg", "seed0")}
    assert records[first].protocol == "full"
    assert measured[0].rows == ["table1/implicit", "table1/sgd"]
