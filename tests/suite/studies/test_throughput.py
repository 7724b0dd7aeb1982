"""Throughput: rows are built as training builds them, and counted rightly. Nothing is timed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from phantomgrad.models.transformer.attention import Context
from phantomgrad.solvers import Broyden
from phantomgrad_suite.data import Cifar10, Digits, ImageNet, WikiText103
from phantomgrad_suite.jobs.build import build_task, compose_row, synthetic_data
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.studies import Throughput
from phantomgrad_suite.studies.clock import Clock
from phantomgrad_suite.studies.training import PHASES, Marks, TrainingStep, _shares
from phantomgrad_suite.tasks import JacobianRegularisation

CPU = torch.device("cpu")
IMPLICIT, UPG, NPG = (
    f"table1/{name}" for name in ("implicit", "upg_k5_d0.5_no_dropout", "npg_k5_d0.5_no_dropout")
)
ROWS = (IMPLICIT, UPG, NPG)
pytestmark = [
    pytest.mark.usefixtures("float32", "hydra_restore_singletons"),
    pytest.mark.filterwarnings("ignore:.*Profiler.*", "ignore:the adjoint solve failed"),
]


class Ticking(Clock):
    """A clock that moves on by a second whenever it is read."""

    now = 0.0

    def mark(self) -> float:
        self.now += 1
        return self.now


# Batches from no file -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "side", "classes"), [(Cifar10, 32, 10), (ImageNet, 224, 1000)], ids=["cifar", "im"]
)
def test_noise_has_the_shapes_of_the_images(data: Any, side: int, classes: int) -> None:
    """Normalised as they are: uniform bytes have a mean of one half."""
    noise = data.synthetic(batch_size=3, root="nowhere")
    images, labels = noise.draw(torch.Generator().manual_seed(0))
    assert images.shape == (3, 3, side, side)
    assert labels.shape == (3,)
    assert (noise.samples, noise.unit) == (3, "images")
    assert noise.sizes() == {"in_channels": 3, "classes": classes}
    assert noise.targets() == {"classes": classes}
    expected = (0.5 - torch.tensor(data.mean)) / torch.tensor(data.deviation)
    torch.testing.assert_close(images.mean(dim=(0, 2, 3)), expected, rtol=0, atol=0.1)


def test_noise_follows_its_seed() -> None:
    noise = Cifar10.synthetic(batch_size=2)
    first, again, other = (noise.draw(torch.Generator().manual_seed(s)).images for s in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_words_of_noise_follow_the_law_of_a_text() -> None:
    """A target is the next token; a tenth of the words makes most of the text."""
    noise = WikiText103.synthetic(batch_size=40, segment_length=50, name="wikitext103")
    tokens, targets, first = noise.draw(torch.Generator().manual_seed(0))
    assert tokens.shape == targets.shape == (40, 50)
    assert torch.equal(tokens[:, 1:], targets[:, :-1])
    assert not first
    assert (noise.samples, noise.unit) == (2000, "tokens")
    assert noise.sizes() == {"vocabulary": 267_735}
    assert noise.targets() == {}
    weights = 1 / (torch.arange(267_735, dtype=torch.float64) + 3.7)
    expected = float(weights[:20_000].sum() / weights.sum())
    assert float((tokens < 20_000).double().mean()) == pytest.approx(expected, abs=0.05)
    assert int(tokens.max()) < 267_735


def test_penalty_counts_by_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both kinds of step are made, and weighed."""
    penalty = JacobianRegularisation(weight=1.0, frequency=0.25)
    assert [(s, j and j.frequency) for s, j in _shares(penalty)] == [(0.25, 1.0), (0.75, None)]
    assert _shares(None) == [(1.0, None)]
    assert _shares(replace(penalty, frequency=0.0)) == [(1.0, None)]
    assert _shares(replace(penalty, frequency=1.0)) == [(1.0, replace(penalty, frequency=1.0))]
    step = TrainingStep("wikitext/preln_jr_upg_k5_d0.8", 1, 0, Ticking(torch.device("cpu")))
    step.warm_up(2)  # the second one remembers the first
    frequency = step.config.task.jacobian.frequency
    made: list[bool] = []

    def fake() -> Marks:
        made.append(step.task.jacobian is not None)
        return Marks(0.0, 1.0, 3.0 if made[-1] else 2.0, 4.0)

    monkeypatch.setattr(step, "_step", fake)
    step.measure()
    assert made == [True, False]
    assert step.seconds["backward"] == [pytest.approx(frequency * 2 + (1 - frequency) * 1)]


def test_data_without_noise_say_so() -> None:
    with pytest.raises(UserError, match="Digits has no synthetic batches"):
        Digits.synthetic(batch_size=2)


# Rows by name ---------------------------------------------------------------------------------


def test_a_row_is_composed_outside_of_hydra_and_built_without_its_data(tmp_path: Path) -> None:
    """With the weights of its own seed, as many as a training run has."""
    config = compose_row("table3/imagenet_upg")
    config.paths.data = str(tmp_path)
    data = synthetic_data(config.dataset, batch_size=2)
    assert (data.samples, synthetic_data(config.dataset).samples) == (2, 16)
    task = build_task(config, data)
    assert sum(p.numel() for p in task.model.parameters()) == 16_808_936
    assert config.gradient.damping == 0.6


def test_a_row_that_does_not_exist_is_named() -> None:
    with pytest.raises(UserError, match="there is no experiment 'table3/cifar10_ugp'; the near"):
        compose_row("table3/cifar10_ugp")


# A step ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def steps() -> dict[str, TrainingStep]:
    """Each row of the tests, warmed up and measured once, at a batch of two."""
    torch.set_default_dtype(torch.float32)
    found = {row: TrainingStep(row, 2, 0, Ticking(CPU)) for row in ROWS}
    for step in found.values():
        step.warm_up(1)
        step.measure()
    return found


def test_a_step_is_of_the_equilibrium_stage_and_solves_as_configured(
    steps: dict[str, TrainingStep],
) -> None:
    """The row of implicit differentiation is pretrained; that stage is not what is measured."""
    (layer,) = steps[IMPLICIT].layers
    assert steps[IMPLICIT].config.task.pretraining_steps == 0
    assert isinstance(layer.solver, Broyden)
    assert layer.last_solution is not None
    assert layer.last_solution.evaluations.tolist() == [23, 23]
    assert steps[UPG].layers[0].last_adjoint is None


def test_a_step_changes_no_weight(steps: dict[str, TrainingStep]) -> None:
    """The next one finds the same solve; gradients are there, momentum too."""
    step = steps[UPG]
    before = [p.clone() for p in step.task.model.parameters()]
    step._step()
    after = list(step.task.model.parameters())
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert any(p.grad is not None and bool(p.grad.norm() > 0) for p in after)
    assert all("momentum_buffer" in s for s in step._optimizer.state.values())


def test_a_step_clips_as_the_trainer_of_its_row() -> None:
    """By the global norm where it says so, by value, or not at all; the optimizer sees that."""
    step = TrainingStep("wikitext/postln_upg_k5_d0.8", 1, 0, Ticking(CPU))
    assert step.config.trainer.gradient_clip_val == 0.25
    norms = []
    for value, algorithm in ((None, None), (0.25, None), (1e-3, None), (1e-5, "value")):
        step.config.trainer.gradient_clip_val = value
        OmegaConf.update(step.config, "trainer.gradient_clip_algorithm", algorithm, force_add=True)
        torch.manual_seed(0)
        step._step()
        gradients = [p.grad for p in step.task.model.parameters() if p.grad is not None]
        norms.append(float(torch.nn.utils.get_total_norm(gradients)))
    assert norms[0] > 0.25
    assert norms[1:3] == pytest.approx([0.25, 1e-3], rel=1e-4)
    assert max(float(g.abs().max()) for g in gradients) == pytest.approx(1e-5)


def test_what_a_layer_was_called_with_keeps_no_graph() -> None:
    """The constants of a segment come in a tuple: none of them keeps the pass they are from."""
    step = TrainingStep("wikitext/postln_upg_k5_d0.8", 1, 0, Ticking(CPU))
    step.warm_up(1)
    ((_, (context,), z0),) = step._calls
    assert isinstance(context, Context)
    assert all(not t.requires_grad and t.grad_fn is None for t in (*context, z0))
    step.measure()
    assert step.seconds["f"] == [1]


def test_phases_add_up_and_f_is_apart(steps: dict[str, TrainingStep]) -> None:
    """Four readings of the clock in a step: three phases of a second each."""
    seconds = {phase: values[-1] for phase, values in steps[NPG].seconds.items()}
    assert seconds == {"step": 3, "forward": 1, "backward": 1, "update": 1, "f": 1}
    assert set(PHASES) < set(seconds)


def test_memory_of_unrolling_is_the_largest(steps: dict[str, TrainingStep]) -> None:
    assert steps[UPG].peak_bytes > steps[NPG].peak_bytes > 0


def test_another_compiler_is_refused() -> None:
    with pytest.raises(UserError, match=r"compile must be null, .*, got 'gcc'"):
        TrainingStep(UPG, 2, 0, Clock(CPU), "gcc")


# The study ------------------------------------------------------------------------------------


def test_what_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a clock that ticks once a reading, all phases of all rows take a second."""
    monkeypatch.setattr("phantomgrad_suite.studies.throughput.Clock", Ticking)
    monkeypatch.setattr("phantomgrad_suite.studies.training.peak_bytes", lambda run, device: 640)
    study = Throughput(
        rows=ROWS,
        batch_size=1,
        batch_sizes={UPG: 2},
        baselines={UPG: IMPLICIT, NPG: "table1/elsewhere"},
        warmup=1,
        repeats=2,
    )
    rows = {row["row"]: row for row in study.measure(0, CPU).numbers["rows"]}
    implicit, upg, npg = (rows[name] for name in ROWS)
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
    assert upg["label"]["method"] == "UPG (A(5, 0.5), w/o Dropout)"
    assert upg["peak_bytes"] == 640
    assert upg["parameters"] == 158_986


def test_batches_are_counted_in_one_unit_and_solves_to_their_end() -> None:
    """Words on both sides; and f is evaluated as often as the slowest sample needs."""
    step = TrainingStep("wikitext/preln_jr_upg_k5_d0.8", 2, 0, Ticking(CPU))
    setting = _setting(step)
    words = step.config.dataset.segment_length
    assert setting["unit"] == "tokens"
    assert (setting["batch"], setting["own_batch"]) == (2 * words, 16 * words)
    step._step()
    (layer,) = step.layers
    assert layer.last_solution is not None
    spent = torch.tensor([5, 9])
    layer.last_solution = layer.last_solution._replace(evaluations=spent)
    assert _evaluations([layer])["forward"]["mean"] == 9


def test_rows_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row once in each round, after all are warm."""
    turns: list[str] = []
    monkeypatch.setattr(
        TrainingStep, "__init__", lambda self, n, *_, **__: setattr(self, "name", n)
    )
    monkeypatch.setattr(TrainingStep, "warm_up", lambda self, n: turns.append(f"warm {self.name}"))
    monkeypatch.setattr(TrainingStep, "measure", lambda self: turns.append(self.name))
    for name in ("_setting", "_cost"):
        monkeypatch.setattr(f"phantomgrad_suite.studies.throughput.{name}", lambda row: {})
    monkeypatch.setattr("phantomgrad_suite.studies.throughput._headline", lambda rows: "")
    Throughput(rows=["a", "b"], repeats=2).measure(0, CPU)
    assert turns == ["warm a", "warm b", "a", "b", "a", "b"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"rows": "table1/implicit"}, "rows must be a list"),
        ({"rows": []}, "rows must hold at least 1"),
        ({"rows": ["a"], "repeats": 0}, "repeats must be at least 1, got 0"),
        ({"rows": ["a"], "warmup": 0}, "warmup must be at least 1, got 0"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Throughput(**arguments)
