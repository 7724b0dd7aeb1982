"""The training recipe of recursive reasoners: stablemax, Adam-atan2, averaged weights."""

import copy
import io

import pytest
import torch
from torch import nn

from phantomgrad_reasoners.adam_atan2 import AdamAtan2
from phantomgrad_reasoners.reasoning import log_stablemax, weight_average


def test_stablemax_has_the_authors_numbers():
    logits = torch.tensor([-3.0, -1.0, 0.0, 0.5, 2.0])
    expected = torch.tensor([0.25, 0.5, 1, 1.5, 3]).div(6.25).log()
    torch.testing.assert_close(log_stablemax(logits), expected, rtol=1e-14, atol=0)


def test_stablemax_is_a_distribution_of_any_logits():
    logits = torch.tensor([[1e300, -1e300, 0.0], [-1e-30, 1e-30, 0.0], [-1e9, -2e9, -3e9]])
    logs = log_stablemax(logits)
    torch.testing.assert_close(logs.exp().sum(-1), torch.ones(3))
    assert logs.isfinite().all()
    assert log_stablemax(logits[1].half()).dtype == torch.float32


def test_stablemax_is_differentiable_at_zero_too():
    """The derivative of log s is 1 / (1 + |a|), on both sides of zero and there."""
    logits = torch.tensor([-2.0, -0.0, 0.0, 3.0], requires_grad=True)
    (ours,) = torch.autograd.grad(log_stablemax(logits)[3], logits)
    p = log_stablemax(logits).exp()
    expected = (torch.eye(4)[3] - p) / (1 + logits.abs())
    torch.testing.assert_close(ours, expected)
    assert torch.autograd.gradcheck(log_stablemax, torch.randn(5, 4, requires_grad=True))


START = [1.0, -2.0, 0.5]
GRADIENTS = [[0.1, -0.2, 0.0], [0.3, 0.05, -1e-9], [-0.2, 0.4, 2.0]]
AUTHORS = [
    [0.9890331347508838, -1.9880331347508837, 0.4995],
    [0.9790458882829121, -1.9813102571055903, 0.5063028788909955],
    [0.97550518798674, -1.983272784321194, 0.49962260925163005],
]
SETTINGS = {"lr": 0.01, "betas": (0.9, 0.95), "weight_decay": 0.1}


def test_adam_atan2_takes_the_authors_steps():
    """In between it is saved and restored."""
    p = nn.Parameter(torch.tensor(START))
    optimizer = AdamAtan2([p], **SETTINGS)
    for gradient, expected in zip(GRADIENTS, AUTHORS, strict=True):
        p.grad = torch.tensor(gradient)
        optimizer.step()
        torch.testing.assert_close(p.detach(), torch.tensor(expected), rtol=1e-13, atol=0)
        saved = io.BytesIO()
        torch.save(optimizer.state_dict(), saved)
        optimizer = AdamAtan2([p])
        optimizer.load_state_dict(torch.load(io.BytesIO(saved.getvalue())))


def test_adam_atan2_leaves_parameters_without_a_gradient_alone():
    p, frozen = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    optimizer = AdamAtan2([p, frozen], **SETTINGS)

    def closure():
        loss = p.square().sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 2.0
    assert torch.equal(frozen, torch.ones(2))
    assert (p < 1).all()


@pytest.mark.parametrize("warmup", [False, True])
def test_average_is_the_recursion_and_resumes(warmup):
    model = nn.BatchNorm1d(3)  # it has buffers, too
    average = weight_average(model, 0.3, warmup)
    expected = model.weight.detach().clone()
    for t in range(1, 6):
        with torch.no_grad():
            model.weight.normal_()
            model.running_mean.normal_()
        average.update_parameters(model)
        d = min(0.3, (t + 1) / (t + 10)) if warmup else 0.3
        expected = d * expected + (1 - d) * model.weight.detach()
        torch.testing.assert_close(average.module.weight.detach(), expected)
        assert torch.equal(average.module.running_mean, model.running_mean)
        restored = weight_average(nn.BatchNorm1d(3), 0.3, warmup)
        restored.load_state_dict(copy.deepcopy(average.state_dict()))
        average = restored
    assert not any(p.requires_grad for p in average.parameters())
    assert model.weight.requires_grad
