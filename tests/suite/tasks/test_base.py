"""What happens around a step of any task: optimizer, projection, clipping, statistics, means."""

import copy
from functools import partial
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from lightning.pytorch.overrides.distributed import UnrepeatedDistributedSampler
from tasks.fitting import QUIET, fit
from torch.utils.data import DataLoader, DistributedSampler

from phantomgrad import FixedPoint, ImplicitGradient
from phantomgrad.models import NodeClassifier
from phantomgrad_suite.checkpoint.loaders import ResumableLoader
from phantomgrad_suite.data.graphs.chains import make_chains
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.tasks import JacobianRegularisation, NodeClassification

pytestmark = pytest.mark.usefixtures("float32")
SOLVER = FixedPoint(max_evaluations=300, tol=1e-5)


def chains_task(lr=5.0, **settings):
    model = NodeClassifier(
        20, 2, SOLVER, ImplicitGradient(solver=SOLVER), channels=8, dropout=0.0, kappa=0.9
    )
    optimizer = partial(torch.optim.SGD, lr=lr)
    return NodeClassification(classes=2, model=model, optimizer=optimizer, **settings)


def fit_chains(task):
    batches = ResumableLoader([make_chains(16, 10, 20, noise=0.0, seed=0)], batch_size=None)
    return fit(task, batches, batches, epochs=2)


def trainer_of(steps, loaders=(), **more):
    batches = {"num_training_batches": steps, "accumulate_grad_batches": 1}
    more |= {"estimated_stepping_batches": steps, "val_dataloaders": list(loaders)}
    return SimpleNamespace(**batches, **more)


@QUIET
def test_training_is_projected_gradient_descent():
    """Two epochs of the loop, the second at half the rate, are the steps written out.

    The statistics of the solvers are logged.
    """
    schedule = partial(torch.optim.lr_scheduler.MultiStepLR, milestones=[1], gamma=0.5)
    task = chains_task(schedule=schedule)
    model = copy.deepcopy(task.model)
    metrics = fit_chains(task).callback_metrics
    batch = make_chains(16, 10, 20, noise=0.0, seed=0)
    mask = batch.masks["train"]
    for rate in (5.0, 2.5):
        loss = F.nll_loss(model(batch.features, batch.propagation)[mask], batch.labels[mask])
        parameters = [p for p in model.parameters() if p.requires_grad]
        for p, g in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            p.data -= rate * g
        model.project_()
    torch.testing.assert_close([*task.model.parameters()], [*model.parameters()])
    for name in ("solver", "adjoint"):
        assert metrics[f"{name}/converged"] == 1
        assert 0 < metrics[f"{name}/residual"] < 1e-5
        assert metrics[f"{name}/evaluations"] > 1
    assert metrics["solver/distance"] > 0


def test_each_gradient_is_clipped_on_its_own():
    task = chains_task(clip_each=0.5)
    trained = [p for p in task.model.parameters() if p.requires_grad]
    for parameter, norm in zip(trained, (0.1, 0.5, 7.0), strict=True):
        gradient = torch.randn_like(parameter)
        parameter.grad = norm * gradient / gradient.norm()
    task.on_before_optimizer_step(None)
    norms = [p.grad.norm().item() for p in trained]
    assert norms == pytest.approx([0.1, 0.5, 0.5], rel=1e-5)
    before = task.take_means()["gradient/norm"].item()
    assert before == pytest.approx((0.1**2 + 0.5**2 + 7.0**2) ** 0.5, rel=1e-5)
    for value in (float("inf"), float("nan")):
        trained[0].grad.fill_(value)
        task.on_before_optimizer_step(None)
    assert task.take_means()["gradient/norm"] == 0


def test_shares_become_steps_when_the_training_starts():
    task = chains_task()
    task.pretrain(0.26, 2)
    task.jacobian = JacobianRegularisation(weight=1.0, increase=0.1, every=0.25, from_step=0.26)
    task.trainer = trainer_of(12)
    task.on_train_start()
    assert (task.jacobian.every, task.jacobian.from_step) == (3, 3)
    assert [round(task.jacobian.weight_at(step), 1) for step in (3, 5, 6, 9)] == [1, 1, 1.1, 1.2]
    layers = []
    for step in range(5):
        task.trainer = SimpleNamespace(global_step=step)
        layers.append(task.unrolled_layers)
    assert layers == [2, 2, 2, 0, 0]
    with pytest.raises(ValueError, match=r"a share of the steps from 0\.0 to 1\.0, got 1\.5"):
        task.pretrain(1.5, 2)
    with pytest.raises(ValueError, match="pretraining_layers must be at least 1, got 0"):
        task.pretrain(3, 0)


def test_samples_that_would_be_counted_twice_are_refused():
    """Lightning's sampler repeats some of 7 samples in two processes; one that does not is fine."""
    task, data = chains_task(), range(7)
    task.evaluation_sets = ("test", "validation")
    repeated = DistributedSampler(data, 2, 0)
    even = DistributedSampler(range(8), 2, 0)
    exact = UnrepeatedDistributedSampler(data, num_replicas=2, rank=0, shuffle=False)
    for samplers in ([even, exact], [even, repeated]):
        loaders = [DataLoader(s.dataset, sampler=s) for s in samplers]
        task.trainer = trainer_of(1, loaders, world_size=2)
        if samplers[-1] is exact:
            task.on_train_start()
    with pytest.raises(UserError, match=r"processes must divide the 7 samples .* got 2"):
        task.on_train_start()
