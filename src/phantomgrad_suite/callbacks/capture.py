"""Passes through equilibrium layers: watched in a step, measured, and evaluated again later."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList
from torch.utils.hooks import RemovableHandle

from phantomgrad.checks import check_at_least
from phantomgrad.deq import DEQ
from phantomgrad.jacobian import spectral_radius
from phantomgrad.nn import one_pass
from phantomgrad.solvers import Map


def layers_of(module: nn.Module) -> list[DEQ]:
    """Return the equilibrium layers in ``module``."""
    return [child for child in module.modules() if isinstance(child, DEQ)]


def radii(f: Map, z: Tensor, iterations: int) -> Tensor:
    """Return each sample's spectral radius without advancing the run's generators."""
    generator = torch.Generator(device=z.device).manual_seed(0)
    return spectral_radius(f, z, iterations=iterations, generator=generator)


def watch(
    module: nn.Module, on_pass: Callable[[DEQ, tuple[Any, ...], Any], None]
) -> list[RemovableHandle]:
    """Call ``on_pass(layer, inputs, output)`` after every pass through the layers of a module.

    With ``record_at``, ``output.z`` is the equilibrium, without the earlier states.
    """

    def hook(layer: Any, inputs: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> None:
        if keywords.get("record_at") is not None:
            output = output._replace(z=output.z[-1])
        on_pass(layer, inputs, output)

    return [layer.register_forward_hook(hook, with_kwargs=True) for layer in layers_of(module)]


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
        self._hooks: list[RemovableHandle] = []
        self._radii: list[Tensor] = []

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if self._every and batch_idx == 0 and trainer.current_epoch % self._every == 0:
            self._hooks = watch(pl_module, self._measure)

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        while self._hooks:
            self._hooks.pop().remove()
        if self._radii:
            largest = torch.cat(self._radii).max()
            options: dict[str, Any] = {"on_step": False, "on_epoch": True, "batch_size": 1}
            pl_module.log("spectral_radius", largest, reduce_fx="max", sync_dist=True, **options)
            self._radii.clear()

    def _measure(self, layer: DEQ, inputs: tuple[Any, ...], output: Any) -> None:
        with all_recorded(layer.cell):
            f, z, _ = layer.close_over(inputs, output[0])
            self._radii.append(radii(f, z, self._iterations))


class Pass:
    """A pass of a training step; ``reached`` once a backward pass has arrived at its output."""

    def __init__(self, layer: DEQ, inputs: tuple[Any, ...], output: Any) -> None:
        z, solution = output
        self._layer, self.solver = layer, layer.solver
        self._inputs = apply_to_collection(inputs, Tensor, Tensor.detach, allow_frozen=True)
        self._z = solution.z.detach().clone()
        self._single = isinstance(z, Tensor)
        parts = (z,) if self._single else tuple(z)
        self._cotangent = [torch.zeros_like(part) for part in parts]
        self.reached = False
        for i, part in enumerate(parts):
            if part.requires_grad:
                part.register_hook(partial(self._keep, i))

    def _keep(self, part: int, cotangent: Tensor) -> None:
        self._cotangent[part] = cotangent.detach().clone()
        self.reached = True

    @contextmanager
    def replay(self) -> Iterator[tuple[Map, Tensor, Tensor, list[nn.Parameter]]]:
        """Evaluate the pass again, with its dropout masks and copies of weights and generators.

        Yields the map ``f``; the equilibrium ``z`` that the solver found and the gradient ``v`` of
        the loss with respect to it, both ``(B, *state)``; and the cell's trainable parameters.
        """
        layer = copy.deepcopy(self._layer)
        for module in layer.modules():
            if isinstance(module, ParametrizationList):
                module.eval()  # spectral norm would do another power iteration
        devices = [self._z.device] if self._z.device.type == "cuda" else []
        with (
            torch.enable_grad(),
            torch.random.fork_rng(devices),
            one_pass(layer.cell),
        ):
            cotangent = self._cotangent[0] if self._single else self._cotangent
            f, v, _ = layer.close_over(self._inputs, cotangent)
            yield f, self._z, v, [p for p in layer.cell.parameters() if p.requires_grad]
