"""SegmentPrecision: gradients and fixed points of reasoners, and no effect on a run."""

import contextlib
from types import SimpleNamespace

import pytest
import torch
from interruptions import measured_curves
from torch import nn

import phantomgrad as pg
from phantomgrad.models import RecursiveCell, RecursiveReasoner
from phantomgrad_reasoners import segment_precision
from phantomgrad_reasoners.puzzles import PuzzleSet
from phantomgrad_reasoners.reasoning import Reasoning
from phantomgrad_reasoners.segment_precision import SegmentPrecision, rank_correlation
from phantomgrad_suite.runs.errors import UserError

ONE = pg.UnrolledPhantomGradient(1, 1.0)
NPG = pg.NeumannPhantomGradient(3, 0.5, value="image")
TIGHT = pg.Broyden(max_evaluations=60, tol=1e-12)
NOISY = {"noise": 0.3, "random_start": True}
SHORT = dict.fromkeys(("solver", "adjoint"), pg.Broyden(max_evaluations=4))
INPUTS = torch.tensor([[1, 2], [3, 1], [2, 2], [4, 1]])


class Scaled(nn.Module):
    """The linear network g(h) = w h, entry by entry."""

    def __init__(self, w):
        super().__init__()
        self.w = nn.Parameter(torch.tensor(w))

    def forward(self, state, injection, noise=None):
        return self.w * (state + injection)


def reasoner(solver, gradient, **settings):
    torch.manual_seed(1)
    sizes = {"width": 4, "n": 2, "multiple": 8}
    return RecursiveReasoner(5, 2, solver, gradient, **(sizes | settings))


def measured(model, monkeypatch, **settings):
    """The values of a step of two segments, and the gradients by name."""
    gradients = []
    agreement = getattr(segment_precision, "agreement")  # noqa: B009

    def compared(*pair):
        gradients.append(pair)
        return agreement(*pair)

    monkeypatch.setattr(segment_precision, "agreement", compared)
    task = Reasoning(model=model, optimizer=None, averaging=None, segments=2)
    data = SimpleNamespace(parts={"validation": PuzzleSet(INPUTS, INPUTS.flip(1), INPUTS)})
    points = []
    trainer = SimpleNamespace(
        global_step=4,
        loggers=[SimpleNamespace(log_metrics=lambda values, step: points.append(values))],
        precision_plugin=SimpleNamespace(forward_context=contextlib.nullcontext),
        datamodule=data,
    )
    defaults = {"estimators": {}, "recorded": [1], "solver": TIGHT, "adjoint": TIGHT}
    callback = SegmentPrecision(**(defaults | {"every_n_steps": 2} | settings))
    callback.on_fit_start(trainer, task)
    callback.on_train_batch_start(trainer, task)
    callback.on_train_end(trainer, task)  # the same step
    trainer.global_step = 5
    callback.on_train_batch_start(trainer, task)
    assert callback.curves.pop("precision/step") == [4]
    assert [points[0]] == points
    values = {name.removeprefix("precision/"): value for name, value in points[0].items()}
    names = [name.split("/")[0] for name in values if name.endswith("/cosine")]
    found = {name: [*pair[0]] for name, pair in zip(names, gradients, strict=True)}
    return values, found | {"exact": [*gradients[0][1]]}


def test_a_linear_recursion_has_its_closed_form(monkeypatch):
    """The derivative of each number of last steps by hand, and the exact gradient of all."""
    model = reasoner(pg.Steps(2), ONE)
    weights = [0.2, 0.4, -0.3, 0.5]
    model.deq = pg.DEQ(RecursiveCell(Scaled(weights), n=2), pg.Steps(2), ONE)
    values, found = measured(model, monkeypatch, recorded=[*range(1, 10)])
    w = torch.tensor(weights)
    for j in range(1, 10):
        total, state = torch.zeros(4), model.start(INPUTS)
        for _ in range(2):  # segments
            (y, z), x = state, model.embed(INPUTS).detach()
            dy, dz = torch.zeros_like(y), torch.zeros_like(z)
            for step in range(1, 10):
                recorded = 1.0 * (step > 9 - j)
                if step % 3:
                    dz, z = recorded * (z + y + x + w * (dz + dy)), w * (z + y + x)
                else:
                    dy, y = recorded * (y + z + w * (dy + dz)), w * (y + z)
            y = y.detach().requires_grad_()
            losses = nn.functional.cross_entropy(
                model.output(y).flatten(0, 1), INPUTS.flip(1).flatten()
            )
            (v,) = torch.autograd.grad(losses, y)
            total, state = total + (v * dy).sum(dim=(0, 1)), (y.detach(), z)
        torch.testing.assert_close(found[f"last_{j}"][0], total.detach())
    assert (values["last_9/cosine"], values["last_9/norm_ratio"]) == pytest.approx((1, 1))
    assert values["last_1/cosine"] < 0.999


def test_at_a_fixed_point_of_a_linear_recursion_all_agree(monkeypatch):
    """After 100 recursions; the spectral radius is that of the 2 x 2 blocks of G_2."""
    model, weights = reasoner(pg.Steps(2), ONE), torch.tensor([0.2, 0.4, -0.3, 0.35])
    model.deq = pg.DEQ(RecursiveCell(Scaled(weights.tolist()), n=2), pg.Steps(99), ONE)
    estimators = {
        "npg": pg.NeumannPhantomGradient(200, 0.5),
        "upg": pg.UnrolledPhantomGradient(200, 0.5),
    }
    many = {"iterations": 200, "estimators": estimators, "adjoint": pg.GMRES(tol=1e-12)}
    values, _ = measured(model, monkeypatch, recorded=[300], **many)
    for name in ("last_300", "npg", "upg", "implicit"):
        assert values[f"{name}/cosine"] == pytest.approx(1)
        assert values[f"{name}/norm_ratio"] == pytest.approx(1)
    radii = []
    for w in weights:
        blocks = torch.stack([w + w * (w + w**2), w * w**2, w + w**2, w**2]).view(2, 2)
        radii.append(torch.linalg.eigvals(blocks).abs().max())
    for segment in (1, 2):
        expected = pytest.approx(max(radii).item(), rel=1e-6)
        assert values[f"segment{segment}/spectral_radius"] == expected
        assert values[f"segment{segment}/residual"] < 1e-12
        assert values[f"segment{segment}/converged"] == 1
        assert values[f"segment{segment}/adjoint_converged"] == 1


@pytest.mark.parametrize(
    ("name", "solver", "gradient", "recorded"),
    [
        ("exact", pg.Steps(3), pg.BackpropThroughSolver(), None),
        ("last_6", pg.Steps(1), pg.UnrolledPhantomGradient(2, 1.0), None),
        ("last_3", pg.Steps(2), ONE, None),
        ("last_2", pg.Steps(2), ONE, 2),
        ("npg", pg.Steps(2), NPG, None),
    ],
)
def test_gradients_are_those_that_rows_train_with(name, solver, gradient, recorded, monkeypatch):
    """Of the same weights and noise, over two segments; the model's gradient does not matter."""
    model = reasoner(pg.Steps(2), ONE, recorded=1, **NOISY)
    counts = {"recorded": [1, 2, 3, 6], "estimators": {"npg": NPG}, "iterations": 2, **SHORT}
    torch.manual_seed(5)
    _, found = measured(model, monkeypatch, **counts)
    assert model.deq.cell.recorded == 1
    row = reasoner(solver, gradient, recorded=recorded, **NOISY)
    row.load_state_dict(model.state_dict())
    torch.manual_seed(5)
    state = None
    for _ in range(2):
        answer = row(INPUTS, state)
        state = answer.state
        losses = nn.functional.cross_entropy(answer.logits.flatten(0, 1), INPUTS.flip(1).flatten())
        losses.backward()
    for ours, parameter in zip(found[name], row.deq.cell.parameters(), strict=True):
        torch.testing.assert_close(ours, parameter.grad)


@pytest.mark.parametrize(
    ("solver", "gradient"),
    [
        (pg.Steps(2), pg.BackpropThroughSolver()),
        (pg.Steps(1), ONE),
        (pg.Steps(0), pg.UnrolledPhantomGradient(2, 1.0)),
        (pg.Steps(1), NPG),
    ],
)
def test_segments_are_as_deep_as_the_model(solver, gradient, monkeypatch):
    """All 6 steps of two recursions give the exact gradient; a seventh is refused."""
    values, _ = measured(reasoner(solver, gradient), monkeypatch, recorded=[6], **SHORT)
    assert values["last_6/cosine"] == pytest.approx(1)
    with pytest.raises(UserError, match="at most 6, the steps of a segment, got 7"):
        measured(reasoner(solver, gradient), monkeypatch, recorded=[7], **SHORT)


def test_residuals_are_of_all_puzzles_and_gradients_of_the_first(monkeypatch):
    model = reasoner(pg.Steps(2), ONE)
    few, first = measured(model, monkeypatch, puzzles=2, **SHORT)
    every, all_of_them = measured(model, monkeypatch, puzzles=4, **SHORT)
    assert few["segment1/residual"] == every["segment1/residual"]
    assert not torch.equal(first["exact"][0], all_of_them["exact"][0])


def test_rank_correlation_has_mean_ranks_of_ties():
    """Ranks 1, 2.5, 2.5, 4 against 2, 1, 3.5, 3.5."""
    a, b = torch.tensor([0.1, 0.5, 0.5, 3.0]), torch.tensor([2, 0, 7, 7])
    expected = torch.corrcoef(torch.tensor([[1, 2.5, 2.5, 4], [2, 1, 3.5, 3.5]]))[0, 1]
    assert rank_correlation(a, b) == pytest.approx(expected.item())


RUN = (
    *("experiment=reasoning/instruments", "dataset=sudoku4", "model.width=8", "model.n=2"),
    *("dataset.train=16", "dataset.repeats=2", "dataset.test=9", "dataset.validation=9"),
    *("dataset.batch_size=8", "measure.segments.every_n_steps=4", "measure.segments.puzzles=3"),
    *("measure.segments.iterations=2", "measure.segments.adjoint.max_evaluations=4"),
    *("measure.segments.recorded=[1,9]", "task.segments=2", "task.evaluated_segments=[]"),
    *("runtime.checkpoint.every_minutes=0", "schedule.warmup=5"),
)  # fmt: skip


def test_record_has_the_curves_of_a_run_that_is_not_changed(workplace):
    kept = measured_curves(workplace, RUN, ["measure.segments=null"], at=5, unit="step")
    assert kept["precision/step"] == [0, 4, 8]
    assert kept["precision/last_9/cosine"] == [1] * 3


@pytest.mark.parametrize("name", ["cpu", "cuda:1"])
def test_noise_that_is_drawn_to_measure_does_not_change_the_run(name, monkeypatch):
    """The generator of the device that draws it is restored, as is that of the CPU."""
    restored = []

    def fork(devices):
        restored.extend(devices)
        return contextlib.nullcontext()

    monkeypatch.setattr(torch.random, "fork_rng", fork)
    monkeypatch.setattr(SegmentPrecision, "_measure", lambda *_: {})
    callback = SegmentPrecision({}, [1], **SHORT)
    trainer = SimpleNamespace(
        global_step=0,
        loggers=[],
        precision_plugin=SimpleNamespace(forward_context=contextlib.nullcontext),
        datamodule=SimpleNamespace(parts={"validation": None}),
    )
    callback.on_train_batch_start(trainer, SimpleNamespace(device=torch.device(name)))
    assert restored == [torch.device(name)] * (name != "cpu")


def test_what_is_no_reasoner_is_refused(workplace):
    for settings, problem in (
        (("model.n=null", "model.recorded=null"), "needs a reasoner with two latents: model=trm"),
        (("+solver.damping=0.5",), "needs a segment of undamped recursions: solver=steps"),
        (("measure.segments.recorded=[10]",), "at most 9, the steps of a segment, got 10"),
        (("measure.segments.puzzles=0",), "puzzles must be at least 1, got 0"),
    ):
        with pytest.raises(UserError, match=problem):
            workplace.train(*RUN, *settings)
