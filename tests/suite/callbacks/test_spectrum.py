"""The spectral radius along a run: the dense one, and no trace in the run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from problems import CoupledCell, dense_jacobian
from torch import Tensor, nn
from training import Workplace

from phantomgrad import DEQ, FixedPoint, UnrolledPhantomGradient
from phantomgrad.models import GraphClassifier, Propagation, normalized_adjacency
from phantomgrad_suite.callbacks import SpectralRadius

NODES = 6


class Module(nn.Module):
    """A stand-in for the Lightning module: a model, and what was logged."""

    device = torch.device("cpu")

    def __init__(self) -> None:
        super().__init__()
        solver = FixedPoint(max_evaluations=300, tol=1e-14, stop="absolute", norm="max")
        gradient = UnrolledPhantomGradient(5, 0.5)
        self.model = GraphClassifier(3, 2, solver, gradient, channels=5, layers=2, kappa=0.99)
        self.logged: list[tuple[str, Tensor]] = []

    @property
    def layers(self) -> list[DEQ]:
        return [module for module in self.modules() if isinstance(module, DEQ)]

    def log(self, name: str, value: Tensor, **_: object) -> None:
        self.logged.append((name, value))


@pytest.fixture
def module() -> Module:
    return Module()


@pytest.fixture
def inputs() -> tuple[Tensor, Propagation, Propagation]:
    ring = torch.arange(NODES)
    edges = torch.stack([torch.cat([ring, ring.roll(1)]), torch.cat([ring.roll(1), ring])])
    propagation = normalized_adjacency(edges, NODES, dtype=torch.float64)
    return torch.randn(NODES, 3), propagation, Propagation(torch.ones(1, NODES))


def step(
    callback: SpectralRadius, module: Any, inputs: Any, *, epoch: int = 0, batch: int = 0
) -> None:
    """The part of a training step that the callback sees, in an epoch of this one batch."""
    trainer: Any = SimpleNamespace(current_epoch=epoch, is_last_batch=True)
    callback.on_train_batch_start(trainer, module, None, batch)
    loss = module.model(*inputs, propagated=False).sum()
    callback.on_before_backward(trainer, module, loss)
    callback.on_train_batch_end(trainer, module, None, None, batch)


@contextmanager
def seen(layers: list[DEQ]) -> Iterator[list[tuple[DEQ, tuple[Any, ...], Tensor]]]:
    """Collect inputs and equilibria of the layers."""
    found: list[tuple[DEQ, tuple[Any, ...], Tensor]] = []
    handles = [
        layer.register_forward_hook(lambda m, i, o: found.append((m, i, o[0].detach())))
        for layer in layers
    ]
    yield found
    for handle in handles:
        handle.remove()


def test_radius_is_the_dense_one(module: Module, inputs: Any) -> None:
    with seen(module.layers) as equilibria:
        step(SpectralRadius(every_n_epochs=1, iterations=1000), module, inputs)
    radii = []
    for layer, given, z in equilibria:
        jacobian = torch.autograd.functional.jacobian(lambda s: layer.cell(s, *given), z)  # noqa: B023
        square = jacobian.reshape(z.numel(), z.numel())
        radii.append(torch.linalg.eigvals(square).abs().max())
    assert len(radii) == 2
    ((name, value),) = module.logged
    assert name == "spectral_radius"
    assert value.item() == pytest.approx(max(radii).item(), rel=1e-2)
    assert 0 < value < 0.99


def test_several_states_have_one_radius() -> None:
    """That of their joint Jacobian."""
    solver = FixedPoint(max_evaluations=200, tol=1e-14)
    layer = DEQ(CoupledCell(), solver, UnrolledPhantomGradient(5, 0.5))
    x, callback = torch.randn(1, 4), SpectralRadius(every_n_epochs=1, iterations=1000)
    trainer: Any = SimpleNamespace(current_epoch=0)
    callback.on_train_batch_start(trainer, layer, None, 0)  # type: ignore[arg-type]
    z, _ = layer(x, z0=(torch.zeros(1, 4), torch.zeros(1, 2, 3)))
    callback.on_before_backward(trainer, layer, x)  # type: ignore[arg-type]
    f, joined, _ = layer.close_over((x,), z)
    expected = torch.linalg.eigvals(dense_jacobian(f, joined)[0]).abs().max()
    (radii,) = callback._radii
    assert radii.item() == pytest.approx(expected.item(), rel=1e-2)


def test_it_listens_to_one_batch_of_every_nth_epoch(module: Module, inputs: Any) -> None:
    callback = SpectralRadius(every_n_epochs=2, iterations=1)
    counts = []
    for epoch in range(4):
        for batch in range(2):
            step(callback, module, inputs, epoch=epoch, batch=batch)
            counts.append(len(module.logged))
    assert counts == [1, 1, 1, 1, 2, 2, 2, 2]
    assert not any(layer._forward_hooks for layer in module.layers)


def test_it_can_be_turned_off(module: Module, inputs: Any) -> None:
    step(SpectralRadius(every_n_epochs=0), module, inputs)
    assert module.logged == []


def test_it_draws_from_no_stream_of_the_run(module: Module, inputs: Any) -> None:
    module.eval()
    before = torch.get_rng_state()
    step(SpectralRadius(every_n_epochs=1, iterations=3), module, inputs)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(parameter.grad is None for parameter in module.parameters())


def test_looking_at_a_run_does_not_change_it(workplace: Workplace) -> None:
    """Losses and weights with and without it agree in every bit."""
    here = ("experiment=chains/upg_k5_d0.5", "trainer.max_epochs=4", "checkpoint_every_n_epochs=2")
    states = []
    for every in (0, 1):
        where = (f"paths.runs=runs{every}", f"callbacks.spectrum.every_n_epochs={every}")
        folder = workplace.train(*here, *where)
        states.append(torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True))
    without, with_it = states
    curves, others = (state["callbacks"]["History"]["curves"] for state in states)
    assert "spectral_radius" in others
    assert "spectral_radius" not in curves
    assert all(curves[name] == others[name] for name in ("train/loss", "test/accuracy"))
    for name, value in without["state_dict"].items():
        assert torch.equal(value, with_it["state_dict"][name])


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"every_n_epochs": -1}, "every_n_epochs must be at least 0, got -1"),
        ({"iterations": 0}, "iterations must be at least 1, got 0"),
    ],
)
def test_bad_settings_are_refused(bad: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SpectralRadius(**bad)
