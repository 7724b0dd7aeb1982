"""Throughput: what a study records, and the expected cost of a step. Nothing is timed here."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from studies.test_throughput import CPU, IMPLICIT, NPG, ROWS, UPG, Ticking
from torch import Tensor, nn

import phantomgrad as pg
from phantomgrad.solvers import FixedPoint
from phantomgrad_suite.runs.records import read_study
from phantomgrad_suite.studies import Findings, Throughput
from phantomgrad_suite.studies.throughput import counted, evaluations
from phantomgrad_suite.studies.training import TrainingStep
from phantomgrad_suite.tasks import JacobianRegularisation

in_float32 = pytest.mark.usefixtures("float32", "hydra_restore_singletons")


class CountingCell(nn.Linear):
    """A contraction that counts its calls."""

    calls = 0

    def forward(self, z: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(z) / 4


def step_of(
    gradient: pg.GradientEstimator,
    jacobian: JacobianRegularisation | None = None,
    jitter: int = 0,
    budgets: tuple[int, ...] = (5, 7),
) -> Any:
    """A step of layers that have spent their whole budgets, as far as its cost matters."""
    layers = []
    for budget in budgets:
        solver = FixedPoint(max_evaluations=budget, tol=0)
        layers.append(pg.DEQ(CountingCell(3, 3), solver, gradient))
        layers[-1].check_map = False
        z, _ = layers[-1](z0=torch.ones(2, 3))
        if not isinstance(gradient, pg.BackpropThroughSolver):
            z.sum().backward()
    config = OmegaConf.create({"task": {"budget_jitter": jitter}})
    return SimpleNamespace(layers=layers, task=SimpleNamespace(jacobian=jacobian), config=config)


THREE = FixedPoint(max_evaluations=3, tol=0)


@pytest.mark.filterwarnings("ignore:the adjoint solve failed")
@pytest.mark.parametrize(
    ("gradient", "recorded", "backward"),
    [
        (pg.ImplicitGradient(solver=THREE), 1, 3 + 2),
        (pg.ImplicitGradient(solver=THREE, at="image"), 2, 3 + 2),
        (pg.UnrolledPhantomGradient(4, 0.5), 4, 8),
        (pg.NeumannPhantomGradient(4, 0.5), 1, 3 + 2),
    ],
    ids=["equilibrium", "image", "UPG", "NPG"],
)
def test_the_expected_cost_of_a_step(gradient, recorded, backward) -> None:
    """It is a mean over the layers; the forward pass makes as many calls of the cell."""
    step = step_of(gradient)
    forward = 6 + recorded
    expected = {"step": forward + backward, "forward": forward, "backward": backward}
    assert counted(step) == expected
    assert [layer.cell.calls for layer in step.layers] == [5 + recorded, 7 + recorded]


@pytest.mark.parametrize(
    "gradient",
    [
        pg.ImplicitGradient(order=2),
        pg.ImplicitGradient(on_failure="phantom"),
        pg.UnrolledPhantomGradient(4, "adaptive"),
        pg.BackpropThroughSolver(),
    ],
    ids=repr,
)
def test_gradients_whose_cost_depends_on_the_model_have_no_count(gradient) -> None:
    step = step_of(pg.UnrolledPhantomGradient(4, 0.5))
    for layer in step.layers:
        layer.gradient = gradient
    assert counted(step) is None


def test_steps_that_differ_have_no_count() -> None:
    """They differ by penalties, varying budgets, or different gradients of the layers."""
    gradient, penalty = pg.UnrolledPhantomGradient(4, 0.5), JacobianRegularisation(weight=1.0)
    assert counted(step_of(gradient)) is not None
    assert counted(step_of(gradient, replace(penalty, frequency=0.0))) is not None
    assert counted(step_of(gradient, penalty)) is None
    assert counted(step_of(gradient, jitter=2)) is None
    assert counted(step_of(gradient, budgets=())) is None
    mixed = step_of(gradient)
    mixed.layers[1].gradient = pg.NeumannPhantomGradient(4, 0.5)
    assert counted(mixed) is None


def test_a_solve_lasts_until_its_slowest_sample() -> None:
    (layer,) = step_of(pg.UnrolledPhantomGradient(1, 0.5), budgets=(9,)).layers
    layer.last_solution = layer.last_solution._replace(evaluations=torch.tensor([5, 8]))
    assert evaluations([layer]) == {"forward": {"mean": 8, "budget": 9}}


@in_float32
def test_what_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a clock that moves by a second whenever it is read, every phase takes a second.

    Rows take turns; they are compared with the first one, or with a baseline of their own.
    """

    turns: list[str] = []
    measure = TrainingStep.measure
    monkeypatch.setattr(TrainingStep, "measure", lambda s: (turns.append(s.name), measure(s)))
    monkeypatch.setattr("phantomgrad_suite.studies.throughput.Clock", Ticking)
    monkeypatch.setattr("phantomgrad_suite.studies.training.peak_bytes", lambda run, device: 640)
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
    # Its row takes J at the image: a second graph is recorded.
    assert implicit["counted"] == {"step": 50, "forward": 25, "backward": 25}
    assert upg["counted"] == {"step": 38, "forward": 28, "backward": 10}
    assert npg["counted"] == {"step": 30, "forward": 24, "backward": 6}
    assert upg["in_f"] == {"step": 3, "forward": 1, "backward": 1, "update": 1}
    assert upg["label"]["method"] == "UPG A(5, 0.5)"
    assert (upg["peak_bytes"], upg["parameters"]) == (640, 158_986)


@in_float32
def test_each_list_of_rows_has_a_record_of_its_own(study_script, workplace, monkeypatch) -> None:
    """It is named by rows and device; a run with other settings is not among the results."""
    measured: list[Throughput] = []

    def measure(study: Throughput, *_: Any) -> Findings:
        measured.append(study)
        return Findings({"clock": "none", "rows": []})

    monkeypatch.setattr(Throughput, "measure", measure)
    for rows in ("table1/implicit,table1/sgd", "table3/cifar10_upg"):
        assert study_script("study=throughput", f"rows=[{rows}]").code == 0
    assert study_script("study=throughput", "setting.batch_size=2").code == 0
    records = workplace.path / "runs/results/records"
    first, second = (
        Path("throughput/cpu/table1/implicit/table1/sgd"),
        Path("throughput/cpu/table3/cifar10_upg"),
    )
    assert {p.parent.relative_to(records) for p in records.rglob("*.json")} == {first, second}
    assert read_study(records / first / "seed0.json").protocol == "full"
    assert measured[0].rows == ["table1/implicit", "table1/sgd"]
