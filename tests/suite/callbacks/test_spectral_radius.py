"""SpectralRadius: dense values, and when it measures."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from phantomgrad import FixedPoint, UnrolledPhantomGradient
from phantomgrad.models import GraphClassifier, Propagation, normalized_adjacency
from phantomgrad_suite.callbacks import SpectralRadius
from phantomgrad_suite.callbacks.capture import layers_of, watch

SOLVER = FixedPoint(max_evaluations=300, tol=1e-14, stop="absolute", norm="max")
GRADIENT = UnrolledPhantomGradient(5, 0.5)


class Module(nn.Module):
    """A stand-in for the Lightning module: a model of two layers, and what was logged."""

    device = torch.device("cpu")

    def __init__(self):
        super().__init__()
        self.model = GraphClassifier(3, 2, SOLVER, GRADIENT, channels=5, layers=2, kappa=0.99)
        self.logged = []

    def log(self, name, value, **_):
        self.logged.append((name, value))


def step(callback, module, epoch=0, batch=0):
    """The part of a training step that the callback sees, in an epoch of this one batch."""
    ring = torch.arange(6)
    edges = torch.stack([torch.cat([ring, ring.roll(1)]), torch.cat([ring.roll(1), ring])])
    propagation = normalized_adjacency(edges, 6, dtype=torch.float64)
    trainer = SimpleNamespace(current_epoch=epoch)
    callback.on_train_batch_start(trainer, module, None, batch)
    module.model(torch.randn(6, 3), propagation, Propagation(torch.ones(1, 6)), propagated=False)
    callback.on_before_backward(trainer, module)


def test_radius_is_the_dense_one():
    module = Module()
    passes = []
    for_passes = watch(module, lambda m, f, z, attached: passes.append((f, attached.detach())))
    step(SpectralRadius(every_n_epochs=1, iterations=1000), module)
    for hook in for_passes:
        hook.remove()
    radii = []
    for f, z in passes:
        jacobian = torch.autograd.functional.jacobian(f, z)
        square = jacobian.reshape(z.numel(), z.numel())
        radii.append(torch.linalg.eigvals(square).abs().max())
    assert len(radii) == 2
    ((name, value),) = module.logged
    assert name == "spectral_radius"
    assert value.item() == pytest.approx(max(radii).item(), rel=1e-2)
    assert 0 < value < 0.99


@pytest.mark.parametrize(("every", "expected"), [(2, [1, 1, 1, 1, 2, 2, 2, 2]), (0, [0] * 8)])
def test_first_batch_of_every_nth_epoch_is_measured(every, expected):
    callback, module, counts = SpectralRadius(every, iterations=1), Module(), []
    for epoch in range(4):
        for batch in range(2):
            step(callback, module, epoch, batch)
            counts.append(len(module.logged))
    assert counts == expected
    assert not any(layer._pass_hooks for layer in layers_of(module))
