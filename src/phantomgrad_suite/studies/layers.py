"""Equilibrium layers at their equilibria: the synthetic one, and those of a released model."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from phantomgrad.diagnostics import estimated_gradient
from phantomgrad.gradients import GradientEstimator
from phantomgrad.jacobian import pulled_back
from phantomgrad.solvers import Map, Solution, Solver
from phantomgrad.solvers.base import ParametricMap
from phantomgrad_suite.callbacks.capture import Pass, watch
from phantomgrad_suite.jobs.build import build_data, build_task
from phantomgrad_suite.jobs.trained import configuration, read_released
from phantomgrad_suite.studies.synthetic import SyntheticCell

Run = Callable[[], tuple[Tensor, ...]]  # computes a gradient


class Layer(NamedTuple):
    """A map at its equilibrium, the cotangent v there, and the parameters that get a gradient."""

    f: Map
    v: Tensor
    wanted: list[nn.Parameter]
    solution: Solution

    def run(self, estimator: GradientEstimator | Solver) -> Run:
        """Return what computes an estimate; of a solver, its steps from zero are differentiated."""
        f, v, wanted, solution = self
        if isinstance(estimator, Solver):
            return lambda: pulled_back(estimator.solve(f, torch.zeros_like(v)).z, wanted, v)
        own = copy.deepcopy(estimator).after(solution)
        own.observe(f, solution.z)  # an adaptive damping measures the map beforehand
        return partial(estimated_gradient, f, solution.z, v, own, wanted)

    def products(self, estimator: GradientEstimator | Solver) -> int:
        """Return how many backward passes through an evaluation of F an estimate takes."""
        passes: list[int] = []

        def count(fz: Any) -> None:
            first = tree_leaves(fz)[0]
            if first.requires_grad:
                first.register_hook(lambda _: passes.append(1))

        def counted(z: Tensor) -> Tensor:
            count(fz := self.f(z))
            return fz

        # A reversible solve calls copies of the cell, with its hooks.
        cell = getattr(self.f, "cell", None)
        hook = cell.register_forward_hook(lambda *call: count(call[-1])) if cell else None
        run = (self if hook else self._replace(f=counted)).run(estimator)
        passes.clear()  # those of an adaptive damping
        run()
        if hook:
            hook.remove()
        return len(passes)


@dataclass(frozen=True)
class Driven(ParametricMap):
    """``F(h, u)`` as a map of h, with u as what gets a gradient."""

    cell: SyntheticCell
    u: Tensor

    def __call__(self, h: Tensor) -> Tensor:
        fh: Tensor = self.cell(h, self.u)
        return fh

    @property
    def tensors(self) -> list[Tensor]:
        """The input u."""
        return [self.u]

    def with_tensors(self, tensors: list[Tensor]) -> Map:
        """Return the map with another u."""
        return Driven(self.cell, *tensors)


def synthetic_layer(
    cell: SyntheticCell, shape: tuple[int, int], solver: Solver, generator: torch.Generator
) -> Layer:
    """Return the layer of Figure 1, whose rows are samples, with the mean squared error as loss.

    Its input u and target y are drawn; gradients are taken with respect to u.
    """
    inputs, y = torch.randn(2, *shape, generator=generator).to(cell.weight.device)
    u = nn.Parameter(inputs)
    f = Driven(cell, u)
    solution = solver.solve(f, torch.zeros_like(y))
    return Layer(f, (solution.z - y) * (2 / y.numel()), [u], solution)


@contextmanager
def released_layers(
    name: str, folder: Path, solver: Solver, device: torch.device
) -> Iterator[list[Layer]]:
    """Yield the layers of a released model, with the loss of its first training batch.

    The data are in ``folder``; the global generator shuffles them.
    """
    record, weights, _ = read_released(name)
    config = configuration(record, folder)
    data: Any = build_data(config)
    data.setup("fit")
    task = build_task(config, data)
    task.evaluated.load_state_dict(weights)
    task.to(device).eval()
    batch = task.transfer_batch_to_device(next(iter(data.loader("train"))), device, 0)
    passes: list[Pass] = []
    watch(task, lambda *each: passes.append(Pass(*each)))
    loss, _ = task.training_loss(data.on_after_batch_transfer(batch, 0))
    torch.autograd.backward(loss)
    with ExitStack() as stack:
        replays = [stack.enter_context(each.replay()) for each in passes]
        yield [Layer(f, v, w, solver.solve(f, torch.zeros_like(v))) for f, _, v, w in replays]


def joined(runs: Sequence[Run]) -> Run:
    """Return what computes the gradients of ``runs``, one after the other."""
    return lambda: tuple(part for run in runs for part in run())
