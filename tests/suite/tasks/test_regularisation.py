"""Penalties at the equilibrium and the random solver budget, in steps of a task."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

import phantomgrad as pg
from phantomgrad_suite.data.images.base import ImageBatch
from phantomgrad_suite.tasks import (
    FixedPointRegularisation,
    ImageClassification,
    JacobianRegularisation,
    SpectralRegularisation,
)

SOLVER = pg.FixedPoint(max_evaluations=60, tol=1e-10)
IMPLICIT = pg.ImplicitGradient(solver=SOLVER)
BATCH = ImageBatch(torch.ones(4, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 0]))


class Linear(nn.Module):
    """W z + x."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([[0.4, 0.1, 0.0], [0.0, -0.3, 0.2], [0.1, 0, 0.5]]))

    def forward(self, z, x):
        return z @ self.weight.T + x


class Model(nn.Module):
    """Scores that are an equilibrium or, unrolled, an application of the cell."""

    def __init__(self, cell, gradient):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.1))
        self.deq = pg.DEQ(cell, SOLVER, gradient)
        self.budgets = []

    def forward(self, images, unrolled=0):
        x = self.scale * images
        if unrolled:
            return self.deq.cell(x, x).log_softmax(dim=1)
        self.budgets.append(getattr(self.deq.solver, "max_evaluations", None))
        z, _ = self.deq(x)
        return z.log_softmax(dim=1)


def task_of(cell=None, gradient=None, **options):
    model = Model(cell or Linear(), gradient or pg.UnrolledPhantomGradient(3, 0.5))
    optimizer = partial(torch.optim.SGD, lr=0.1)
    return ImageClassification(classes=3, model=model, optimizer=optimizer, **options)


def loss_of(task):
    return task.training_step(BATCH, 0)


def test_penalty_of_a_linear_cell():
    """Its expectation is the squared Frobenius norm over the width; it is logged unweighted."""
    plain, penalised = (
        task_of(jacobian=jacobian)
        for jacobian in (None, JacobianRegularisation(weight=2.0, samples=4000))
    )
    weights = [task.model.deq.cell.weight for task in (plain, penalised)]
    losses = [loss_of(task) for task in (plain, penalised)]
    expected = weights[0].detach().square().sum() / 3
    torch.testing.assert_close(losses[1] - losses[0], 2 * expected, rtol=0.05, atol=0)
    for loss in losses:
        loss.backward()
    added = weights[1].grad - weights[0].grad
    torch.testing.assert_close(added, 4 * weights[0].detach() / 3, rtol=0.1, atol=0.03)
    means = penalised.take_means()
    expected = means["train/loss"] + 2 * means["train/jacobian"]
    torch.testing.assert_close(expected, losses[1].detach())
    assert means["train/jacobian_weight"] == 2


def test_penalty_of_a_state_that_is_no_fixed_point():
    """After two unsolved steps from zero, the gradient is that of both terms."""
    task = task_of(
        gradient=pg.UnrolledPhantomGradient(2, 1.0), jacobian=FixedPointRegularisation(weight=3.0)
    )
    task.model.deq.solver = pg.Steps(0)
    plain = task_of(gradient=pg.UnrolledPhantomGradient(2, 1.0))
    plain.model.deq.solver = pg.Steps(0)
    (found, loss), (scale, cell) = map(loss_of, (task, plain)), (plain.model.scale, Linear())
    x = scale * BATCH.images
    z = cell(x, x)
    expected = loss + 3 * (cell(z, x) - z).square().mean()
    torch.testing.assert_close(found, expected)
    found.backward()
    expected.backward()
    torch.testing.assert_close(task.model.scale.grad, scale.grad)


def test_penalty_on_the_spectral_radius():
    """The largest eigenvalue of the symmetric part is that of a symmetric weight."""
    cell = Linear()
    cell.weight.data = torch.tensor([[0.5, 0.1, 0.0], [0.1, 0.3, 0.0], [0.0, 0.0, 0.1]])
    task = task_of(cell, jacobian=SpectralRegularisation(weight=2.0, iterations=200))
    plain = task_of(cell)
    radius = torch.linalg.eigvalsh(cell.weight.detach()).max()
    torch.testing.assert_close(loss_of(task) - loss_of(plain), 2 * radius)
    means = task.take_means()
    torch.testing.assert_close(means["train/spectral_radius"], radius)
    assert means["train/spectral_radius_weight"] == 2


@pytest.mark.parametrize(("frequency", "expected"), [(0.0, 0), (1.0, 200), (0.4, 80)])
def test_penalty_is_part_of_a_share_of_the_steps(frequency, expected):
    regularisation = JacobianRegularisation(weight=1.0, frequency=frequency)
    drawn = sum(regularisation.is_due() for _ in range(200))
    assert abs(drawn - expected) <= (30 if 0 < frequency < 1 else 0)
    if not frequency:
        task = task_of(jacobian=regularisation)
        torch.testing.assert_close(loss_of(task), loss_of(task_of()), rtol=0, atol=0)


def test_no_penalty_in_pretraining_or_evaluation():
    regularisation = JacobianRegularisation(weight=1.0)
    task = task_of(jacobian=regularisation, pretraining_steps=1, budget_jitter=2)
    before = torch.get_rng_state()
    loss_of(task)
    task.model.eval()
    with torch.no_grad():
        task.scored(BATCH, "test")
    assert set(task.take_means()) == {"train/loss"}
    assert task.model.budgets == [60]
    loss_of(task_of())
    assert torch.equal(torch.get_rng_state(), before)  # nor is anything drawn


@pytest.mark.parametrize(("every", "first"), [(35_000, 35_000), (30_000, 60_000)])
def test_weight_grows_along_the_run(every, first):
    """Between step 32,000 and step 300,000 it grows eight times by 0.1."""
    regularisation = JacobianRegularisation(weight=1.9, every=every)
    weights = [regularisation.weight_at(step) for step in (0, first - 1, first, 299_999)]
    assert weights == pytest.approx([1.9, 1.9, 2.0, 2.7])
    assert replace(regularisation, increase=0.0).weight_at(299_999) == 1.9


def test_budget_jitters_in_training_alone():
    """It is smaller by 0, 1 or 2 evaluations, drawn in each step; the solver is restored."""
    task = task_of(budget_jitter=2)
    for _ in range(100):
        loss_of(task)
        assert task.model.deq.solver is SOLVER
    counts = [task.model.budgets.count(n) for n in (58, 59, 60)]
    assert sum(counts) == 100
    assert min(counts) > 15
    task.model.budgets.clear()
    task.scored(BATCH, "test")
    assert task.model.budgets == [60]
    task.model.deq.cell.weight.data = torch.ones(2, 2)
    with pytest.raises(RuntimeError):  # the shapes do not fit
        loss_of(task)
    assert task.model.deq.solver is SOLVER
