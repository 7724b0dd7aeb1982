"""Passes through equilibrium layers: watched in a step, measured, and evaluated again later."""

import copy
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList

from phantomgrad.checks import check_at_least
from phantomgrad.closure import LayerMap
from phantomgrad.deq import DEQ, PassHook
from phantomgrad.jacobian import spectral_radius
from phantomgrad.nn import current_pass, entered, one_pass
from phantomgrad.solvers import Map


def layers_of(module: nn.Module) -> list[DEQ]:
    """Return the equilibrium layers in ``module``."""
    return [child for child in module.modules() if isinstance(child, DEQ)]


def radii(f: Map, z: Tensor, iterations: int) -> Tensor:
    """Return each sample's spectral radius without advancing the run's generators."""
    generator = torch.Generator(device=z.device).manual_seed(0)
    return spectral_radius(f, z, iterations=iterations, generator=generator)


def watch(module: nn.Module, on_pass: PassHook) -> ExitStack:
    """Call ``on_pass`` after every pass through the layers of a module, until this is closed."""
    hooks = ExitStack()
    for layer in layers_of(module):
        hooks.enter_context(layer.register_pass_hook(on_pass))
    return hooks


def detached(f: LayerMap) -> LayerMap:
    """Return the map without a graph behind its inputs, and without its pass.

    Inputs that require a gradient still do: a compiled map would otherwise be compiled once more.
    """
    inputs, keywords = apply_to_collection(
        (f.inputs, dict(f.keywords)), Tensor, _leaf, allow_frozen=True
    )
    return replace(f, inputs=inputs, keywords=keywords, held=None)


def _leaf(tensor: Tensor) -> Tensor:
    return tensor.detach().requires_grad_(tensor.requires_grad)


@contextmanager
def all_recorded(cell: Any) -> Iterator[None]:
    """Record the whole map, even of a cell that records only its last steps in training."""
    recorded = getattr(cell, "recorded", None)
    if recorded is not None:
        cell.recorded = cell.n + 1
    try:
        yield
    finally:
        if recorded is not None:
            cell.recorded = recorded


class SpectralRadius(Callback):
    """Logs the largest spectral radius of ``df/dz`` at the equilibria of an epoch's first batch."""

    def __init__(self, every_n_epochs: int = 20, iterations: int = 20) -> None:
        check_at_least("every_n_epochs", every_n_epochs, 0)
        check_at_least("iterations", iterations, 1)
        self._every, self._iterations = every_n_epochs, iterations
        self._watched = ExitStack()
        self._radii: list[Tensor] = []

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if self._every and batch_idx == 0 and trainer.current_epoch % self._every == 0:
            self._watched = watch(pl_module, self._measure)

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        self._watched.close()
        if self._radii:
            largest = torch.cat(self._radii).max()
            options: dict[str, Any] = {"on_step": False, "on_epoch": True, "batch_size": 1}
            pl_module.log("spectral_radius", largest, reduce_fx="max", sync_dist=True, **options)
            self._radii.clear()

    def _measure(self, layer: DEQ, f: Map, z: Tensor, attached: Tensor) -> None:
        with all_recorded(layer.cell):
            self._radii.append(radii(f, attached.detach(), self._iterations))


class Pass:
    """A pass of a training step; ``reached`` once a backward pass has arrived at its output."""

    def __init__(self, layer: DEQ, f: Map, z: Tensor, attached: Tensor) -> None:
        assert isinstance(f, LayerMap)
        assert f.held is not None
        self.solver = layer.solver
        self._f, self._held, self._z = detached(f), f.held, z.clone()
        self._cotangent = torch.zeros_like(z)
        self.reached = False
        if attached.requires_grad:
            attached.register_hook(self._keep)  # type: ignore[no-untyped-call]

    def _keep(self, cotangent: Tensor) -> None:
        self._cotangent = cotangent.detach().clone()
        self.reached = True

    @contextmanager
    def replay(self) -> Iterator[tuple[Map, Tensor, Tensor, list[nn.Parameter]]]:
        """Evaluate the pass again, with its dropout masks and copies of weights and generators.

        Yields the map ``f``; the equilibrium ``z`` that the solver found and the gradient ``v`` of
        the loss with respect to it, as ``f`` takes them; and the cell's trainable parameters.
        """
        cell = copy.deepcopy(self._f.cell)
        for module in cell.modules():
            if isinstance(module, ParametrizationList):
                module.eval()  # spectral norm would do another power iteration
        devices = [self._z.device] if self._z.device.type == "cuda" else []
        with (
            torch.enable_grad(),
            torch.random.fork_rng(devices),
            entered(self._held.of_copy(self._f.cell, cell, {})),
            one_pass(cell),
        ):
            f = replace(self._f, cell=cell, call=cell, held=current_pass())
            yield f, self._z, self._cotangent, [p for p in cell.parameters() if p.requires_grad]
