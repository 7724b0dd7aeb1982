"""Equilibrium layers on the bench of gradients: the synthetic one, and those of released models."""

import copy
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from phantomgrad.diagnostics import estimated_gradient
from phantomgrad.gradients import GradientEstimator
from phantomgrad.jacobian import pulled_back
from phantomgrad.models import SyntheticCell
from phantomgrad.nn.closure import Closure
from phantomgrad.solvers import Map, Solution, Solver
from phantomgrad_suite.callbacks.capture import Pass, watch
from phantomgrad_suite.jobs.build import build_data, build_task
from phantomgrad_suite.jobs.trained import configuration, data_in, read_released

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
        passes = []

        def counted(call: Callable[..., Any]) -> Callable[..., Any]:
            def called(*args: Any, **keywords: Any) -> Any:
                fz = call(*args, **keywords)
                first = tree_leaves(fz)[0]
                if first.requires_grad:
                    first.register_hook(lambda _: passes.append(1))
                return fz

            return called

        # A reversible solve needs the closure itself, which knows the weights shared in its pass.
        f: Map = counted(self.f)
        if isinstance(self.f, Closure):
            f = replace(self.f, call=counted(self.f.call))
        run = self._replace(f=f).run(estimator)
        passes.clear()  # those of an adaptive damping
        run()
        return len(passes)


def synthetic_layer(
    cell: SyntheticCell, shape: tuple[int, int], solver: Solver, generator: torch.Generator
) -> Layer:
    """Return the layer of Figure 1, whose rows are samples, with the mean squared error as loss.

    Its input u and target y are drawn; gradients are taken with respect to u.
    """
    inputs, y = torch.randn(2, *shape, generator=generator).to(cell.weight.device)
    u = nn.Parameter(inputs)
    f: Map = partial(cell, u=u)
    solution = solver.solve(f, torch.zeros_like(y))
    return Layer(f, (solution.z - y) * (2 / y.numel()), [u], solution)


@contextmanager
def released_layers(
    name: str, folder: Path, solver: Solver, device: torch.device
) -> Iterator[list[Layer]]:
    """Yield the layers of a released model, with the loss of its first training batch.

    The data are in ``folder``; the global generator shuffles them.
    """
    _, record, weights, _ = read_released(name)
    config = configuration(record, data_in(folder, record))
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
