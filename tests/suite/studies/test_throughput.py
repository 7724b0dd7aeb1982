"""Throughput: rows are built as for training, and their steps are complete. Nothing is timed."""

import pytest
import torch
from omegaconf import OmegaConf
from torch import nn

from phantomgrad import DEQ, FixedPoint, UnrolledPhantomGradient
from phantomgrad_suite.data import Cifar10
from phantomgrad_suite.jobs.compose import compose_row
from phantomgrad_suite.studies import Throughput
from phantomgrad_suite.studies.meters import Clock
from phantomgrad_suite.studies.throughput import PHASES, TrainingStep, evaluations

CPU = torch.device("cpu")
IMPLICIT, UPG = "table1/implicit", "table1/upg_k5_d0.5_no_dropout"
ROWS = (IMPLICIT, UPG, NPG := "table1/npg_k5_d0.5_no_dropout")
WORDS, PRELN = (f"table3/wikitext103_{n}" for n in ("postln_implicit", "preln_jr_upg_14"))
pytestmark = [
    pytest.mark.usefixtures("float32", "own_hydra"),
    pytest.mark.filterwarnings("ignore:.*Profiler.*", "ignore:the adjoint solve failed"),
]


@pytest.fixture
def small_words(monkeypatch):
    """Rows on language in their CPU edition, and narrow."""

    def composed_small(row):
        config = compose_row(f"cpu/{row}")
        config.model.update(width=32, heads=2, inner=64)
        if "solver" in config.model.gradient:
            config.model.gradient.solver.tol = 0.3
        return config

    monkeypatch.setattr("phantomgrad_suite.studies.throughput.compose_row", composed_small)


class Ticking(Clock):
    """A clock that moves on by a second whenever it is read."""

    now = 0.0

    def mark(self):
        self.now += 1
        return self.now


def test_synthetic_images_have_the_shapes_of_the_data():
    """They are normalised as the data are: uniform bytes have a mean of one half."""
    noise = Cifar10.synthetic(batch_size=3, root="nowhere")
    images, labels = noise.draw(torch.Generator().manual_seed(0))
    assert (images.shape, labels.shape) == ((3, 3, 32, 32), (3,))
    assert (noise.samples, noise.unit) == (3, "images")
    assert noise.sizes() == {"in_channels": 3, "classes": 10}
    expected = (0.5 - torch.tensor(Cifar10.mean)) / torch.tensor(Cifar10.deviation)
    torch.testing.assert_close(images.mean(dim=(0, 2, 3)), expected, rtol=0, atol=0.1)
    again, other = (noise.draw(torch.Generator().manual_seed(seed)).images for seed in (0, 1))
    assert torch.equal(images, again)
    assert not torch.equal(images, other)


@pytest.mark.usefixtures("small_words")
def test_a_step_clips_as_the_trainer_of_its_row():
    """It clips by norm, by value, or not at all. The inputs that are kept for f hold no graph."""
    step = TrainingStep(WORDS, 1, 0, Ticking(CPU), False)
    step.measure()
    ((_, (context,), z0),) = step._calls
    assert all(not t.requires_grad and t.grad_fn is None for t in (*context, z0))
    assert step.config.trainer.gradient_clip_val == 0.25
    norms = []
    for value, algorithm in ((None, None), (0.25, None), (1e-3, None), (1e-5, "value")):
        step.config.trainer.gradient_clip_val = value
        OmegaConf.update(step.config, "trainer.gradient_clip_algorithm", algorithm, force_add=True)
        torch.manual_seed(0)
        step.step()
        gradients = [p.grad for p in step.task.model.parameters() if p.grad is not None]
        norms.append(float(torch.nn.utils.get_total_norm(gradients)))
    assert norms[0] > 0.25
    assert norms[1:3] == pytest.approx([0.25, 1e-3], rel=1e-4)
    assert max(float(g.abs().max()) for g in gradients) == pytest.approx(1e-5)


@pytest.mark.usefixtures("small_words")
def test_steps_with_and_without_a_penalty_are_weighted_by_their_share(monkeypatch):
    step = TrainingStep(PRELN, 1, 0, Ticking(CPU), False)
    step.warm_up(1)
    step.measure()
    step.measure()  # the memory has grown: f is timed with the inputs of this step
    own, made = step.task.jacobian, []

    def fake():
        made.append(step.task.jacobian is not None)
        return dict.fromkeys(PHASES, 2.0 if made[-1] else 1.0)

    monkeypatch.setattr(step, "step", fake)
    step.measure()
    assert made == [True, False]
    share = step.config.task.jacobian.frequency
    assert step.seconds["backward"][-1] == pytest.approx(share * 2 + (1 - share) * 1)
    assert step.task.jacobian is own


def test_a_solve_lasts_until_its_slowest_sample():
    solver = FixedPoint(max_evaluations=9, tol=0)
    layer = DEQ(nn.Linear(3, 3), solver, UnrolledPhantomGradient(1, 0.5))
    _, solution = layer(z0=torch.ones(2, 3))
    layer.last_solution = solution._replace(evaluations=torch.tensor([5, 8]))
    assert evaluations([layer]) == {"forward": {"mean": 8, "budget": 9}}


def test_what_is_recorded(monkeypatch):
    """With a clock that moves by a second whenever it is read, every phase takes a second.

    Rows take turns; they are compared with the first one, or with a baseline of their own.
    """
    turns = []
    measure = TrainingStep.measure
    monkeypatch.setattr(TrainingStep, "measure", lambda s: (turns.append(s.name), measure(s)))
    monkeypatch.setattr("phantomgrad_suite.studies.throughput.Clock", Ticking)
    monkeypatch.setattr("phantomgrad_suite.studies.throughput.peak_bytes", lambda run, device: 640)
    settings = {"batch_sizes": {UPG: 2}, "baselines": {NPG: "table1/elsewhere"}}
    study = Throughput(rows=ROWS, batch_size=1, warmup=1, repeats=2, **settings)
    rows = {row["row"]: row for row in study.measure(0, CPU).numbers["rows"]}
    assert turns == [*ROWS, *ROWS]
    implicit, upg, npg = rows.values()
    assert (implicit["batch"], implicit["own_batch"], implicit["effective_batch"]) == (1, 128, 128)
    assert upg["seconds"]["step"]["samples"] == [3, 3]
    assert upg["per_second"] == pytest.approx(2 / 3)
    # Two images in the time of one: twice as fast, sample by sample.
    assert upg["faster"] == {"step": 2, "forward": 2, "backward": 2}
    assert (upg["baseline"], implicit["baseline"], npg["baseline"]) == (IMPLICIT, None, None)
    whole = {"mean": 23, "budget": 23}
    assert implicit["evaluations"] == {"forward": whole, "adjoint": whole}
    assert npg["evaluations"] == {"forward": whole}
    assert upg["in_f"] == {"step": 3, "forward": 1, "backward": 1, "update": 1}
    assert upg["label"]["method"] == "UPG A(5, 0.5)"
    assert (upg["peak_bytes"], upg["parameters"]) == (640, 158_986)


def test_rows_can_be_timed_in_another_precision():
    step = TrainingStep(UPG, 2, 0, Ticking(CPU), False, matmul_precision="high")
    before = torch.get_float32_matmul_precision()
    try:
        step.step()
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)


def test_steps_can_be_timed_with_compiled_evaluations(monkeypatch):
    calls = []
    monkeypatch.setattr(DEQ, "compile_solve", lambda layer, **options: calls.append(options))
    TrainingStep(UPG, 2, 0, Ticking(CPU), False)
    assert not calls
    TrainingStep(UPG, 2, 0, Ticking(CPU), False, compile="reduce-overhead")
    expected = {"batch": None, "recorded": True, "mode": "reduce-overhead", "dynamic": False}
    assert calls == [expected]
