"""Throughput: rows are built as for training, and their steps are complete. Nothing is timed."""

import pytest
import torch
from omegaconf import OmegaConf
from training import composed

from phantomgrad.solvers import Broyden
from phantomgrad_suite.data import Cifar10, Digits, ImageNet, PydocTopics, WikiText103
from phantomgrad_suite.jobs.build import build_task, synthetic_data
from phantomgrad_suite.jobs.compose import compose_row
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.studies.meters import Clock
from phantomgrad_suite.studies.throughput import PHASES, TrainingStep, evaluations

CPU = torch.device("cpu")
IMPLICIT, UPG = "table1/implicit", "table1/upg_k5_d0.5_no_dropout"
ROWS = (IMPLICIT, UPG, NPG := "table1/npg_k5_d0.5_no_dropout")
WORDS, PRELN = (f"table3/wikitext103_{n}" for n in ("postln_implicit", "preln_jr_upg_14"))
pytestmark = [
    pytest.mark.usefixtures("float32", "hydra_restore_singletons"),
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


@pytest.mark.parametrize(
    ("data", "side", "classes"), [(Cifar10, 32, 10), (ImageNet, 224, 1000)], ids=["cifar", "im"]
)
def test_synthetic_images_have_the_shapes_of_the_data(data, side, classes):
    """They are normalised as the data are: uniform bytes have a mean of one half."""
    noise = data.synthetic(batch_size=3, root="nowhere")
    images, labels = noise.draw(torch.Generator().manual_seed(0))
    assert (images.shape, labels.shape) == ((3, 3, side, side), (3,))
    assert (noise.samples, noise.unit) == (3, "images")
    assert noise.sizes() == {"in_channels": 3, "classes": classes}
    expected = (0.5 - torch.tensor(data.mean)) / torch.tensor(data.deviation)
    torch.testing.assert_close(images.mean(dim=(0, 2, 3)), expected, rtol=0, atol=0.1)
    again, other = (noise.draw(torch.Generator().manual_seed(seed)).images for seed in (0, 1))
    assert torch.equal(images, again)
    assert not torch.equal(images, other)


def test_synthetic_words_follow_the_law_of_a_text():
    """A target is the next token, and a tenth of the words makes most of the text."""
    noise = WikiText103.synthetic(batch_size=40, segment_length=50, name="wikitext103")
    tokens, targets, first = noise.draw(torch.Generator().manual_seed(0))
    assert tokens.shape == targets.shape == (40, 50)
    assert torch.equal(tokens[:, 1:], targets[:, :-1])
    assert not first
    assert (noise.samples, noise.unit) == (2000, "tokens")
    assert noise.sizes() == {"vocabulary": 267_735}
    weights = 1 / (torch.arange(267_735, dtype=torch.float64) + 3.7)
    expected = float(weights[:20_000].sum() / weights.sum())
    assert float((tokens < 20_000).double().mean()) == pytest.approx(expected, abs=0.05)
    assert int(tokens.max()) < 267_735


def test_a_row_is_built_without_its_data(tmp_path):
    """The vocabulary of the help texts is their own; digits have no synthetic batches."""
    dataset = composed(["dataset=pydoc_topics"]).dataset
    noise = synthetic_data(dataset)
    own = PydocTopics(batch_size=1, test_batch_size=1, segment_length=8)
    assert noise.sizes() == own.sizes()
    assert noise.samples == dataset.batch_size * dataset.segment_length
    config = compose_row("table3/imagenet_upg")
    config.runtime.paths.data = str(tmp_path)
    data = synthetic_data(config.dataset, batch_size=2)
    assert (data.samples, synthetic_data(config.dataset).samples) == (2, 16)
    task = build_task(config, data)
    assert sum(p.numel() for p in task.model.parameters()) == 16_808_936
    with pytest.raises(UserError, match="Digits has no synthetic batches"):
        Digits.synthetic(batch_size=2)


@pytest.fixture(scope="module")
def steps():
    """A step of each row, warmed up and measured once, on a batch of two."""
    torch.set_default_dtype(torch.float32)
    found = {row: TrainingStep(row, 2, 0, Ticking(CPU), False) for row in ROWS}
    for step in found.values():
        step.warm_up(1)
        step.measure()
    return found


def test_a_step_is_of_the_equilibrium_stage(steps):
    """The row of implicit differentiation is pretrained, but the measured step solves.

    The clock is read four times in a step, and twice around one evaluation of f.
    """
    (layer,) = steps[IMPLICIT].layers
    assert steps[IMPLICIT].config.task.pretraining_steps == 0
    assert isinstance(layer.solver, Broyden)
    assert layer.last_solution is not None
    assert layer.last_solution.evaluations.tolist() == [23, 23]
    assert steps[UPG].layers[0].last_adjoint is None
    seconds = {phase: values[-1] for phase, values in steps[NPG].seconds.items()}
    assert seconds == {"step": 3, "forward": 1, "backward": 1, "update": 1, "f": 1}


def test_a_step_changes_no_weight(steps):
    """Gradients and momentum are computed nevertheless."""
    step = steps[UPG]
    before = [p.clone() for p in step.task.model.parameters()]
    step.step()
    after = list(step.task.model.parameters())
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert any(p.grad is not None and bool(p.grad.norm() > 0) for p in after)
    assert all("momentum_buffer" in s for s in step._optimizer.state.values())


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


@pytest.mark.usefixtures("small_words")
def test_whole_budgets_are_spent():
    """Otherwise the adjoint solve of random weights would end sooner."""
    spent = {}
    for whole in (False, True):
        step = TrainingStep(WORDS, 2, 0, Clock(CPU), whole)
        step.step()
        spent[whole] = evaluations(step.layers)
    assert spent[False]["adjoint"]["mean"] < spent[False]["adjoint"]["budget"]
    assert set(spent[True]) == {"forward", "adjoint"}
    assert all(solves["mean"] == solves["budget"] for solves in spent[True].values())


def test_a_row_in_another_precision_is_refused(monkeypatch):
    config = compose_row(UPG)
    config.trainer.precision = "bf16-mixed"
    monkeypatch.setattr("phantomgrad_suite.studies.throughput.compose_row", lambda name: config)
    with pytest.raises(ValueError, match=rf"32-true, {UPG} has 'bf16-mixed'"):
        TrainingStep(UPG, 2, 0, Clock(CPU), False)


def test_rows_can_be_timed_in_another_precision():
    step = TrainingStep(UPG, 2, 0, Ticking(CPU), False, matmul_precision="high")
    before = torch.get_float32_matmul_precision()
    try:
        step.step()
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)
