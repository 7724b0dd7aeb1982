"""A step whose gradient was no number, made again outside of its run, and looked at."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.utilities import move_data_to_device
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from phantomgrad.deq import DEQ
from phantomgrad_suite.checkpoint.finite import nonfinite_gradients
from phantomgrad_suite.checkpoint.provenance import KEY
from phantomgrad_suite.checkpoint.randomness import set_generators
from phantomgrad_suite.jobs.build import build_data, build_task
from phantomgrad_suite.jobs.numerics import set_float32_precision
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.tasks import Task

_AUTOCAST = {"bf16-mixed": torch.bfloat16}


@dataclass(frozen=True)
class Replay:
    """What a step does when it is made again.

    Attributes:
        step: its number in the run, from 1.
        row: the run, by row and instance.
        loss: of the step.
        batch: which tensors of the batch are not finite.
        parameters: which parameters and buffers were not, before the step.
        modules: which modules gave something that is not, in the order of the forward pass.
        gradients: the parameters whose gradient is not.
        layers: of each equilibrium layer, by name, the largest residual of its solve and, under
            implicit differentiation, of the adjoint solve.
    """

    step: int
    row: str
    loss: float
    batch: list[str]
    parameters: list[str]
    modules: list[str]
    gradients: list[str]
    layers: dict[str, dict[str, float]]

    def __str__(self) -> str:
        found = [
            f"step {self.step} of {self.row}, made again",
            f"loss              {self.loss}",
            f"in the batch      {_listed(self.batch)}",
            f"in parameters     {_listed(self.parameters)}",
            f"in the forward    {_listed(self.modules)}",
            f"in the gradients  {_listed(self.gradients)}",
        ]
        for name, residuals in self.layers.items():
            told = ", ".join(f"{solve} residual {value:.3g}" for solve, value in residuals.items())
            found.append(f"{name:<17} {told}")
        return "\n".join(found)


def replay(path: Path) -> Replay:
    """Make the step in a file again: its batch, parameters, buffers and generators.

    The file is unpickled, which runs what is in it: open those of your own runs only. An adaptive
    damping starts from the radius that the step has measured.

    Raises:
        UserError: the file is not there, or holds no step; its data set is not here.
    """
    content = _load(path)
    facts = content[KEY]
    config = OmegaConf.create(facts["config"])
    device = _device(content["device"])
    set_float32_precision(config.matmul_precision)
    task = build_task(config, build_data(config))
    task.load_state_dict(content["state_dict"])
    task.to(device).train()
    task.steps_before = content["step"]
    task.carry(content["carried"])
    spoiled = [name for name, value in task.state_dict().items() if not _is_finite(value)]
    set_generators(_of_one_device(content["generators"], torch.device(content["device"])))
    batch = move_data_to_device(content["batch"], device)
    with _nonfinite_outputs(task) as modules:
        with _autocast(config, device):
            loss = task.training_step(batch, 0)
        loss.backward()  # type: ignore[no-untyped-call]
    return Replay(
        step=content["step"] + 1,
        row=f"{facts['row']} {facts['instance']}",
        loss=loss.item(),
        batch=_nonfinite_tensors(batch),
        parameters=spoiled,
        modules=modules,
        gradients=nonfinite_gradients(task),
        layers=_residuals(task),
    )


def _load(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=False)
        if not content.keys() >= {
            "batch",
            "generators",
            "carried",
            "state_dict",
            "step",
            "device",
            KEY,
        }:
            raise ValueError("a checkpoint, perhaps")
    except Exception as error:
        raise UserError(
            f"{path} holds no step to be made again ({type(error).__name__}: {error}): choose a "
            "file of runs/.../nonfinite"
        ) from error
    return content


def _device(name: str) -> torch.device:
    """Return the kind of device that the step was made on: each has generators of its own."""
    if torch.device(name).type == "cuda" and not torch.cuda.is_available():
        raise UserError(f"the step was made on {name}, and there is no such device here")
    return torch.device(torch.device(name).type)


def _of_one_device(states: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """Return the states of the generators, of those of several GPUs the one that counted."""
    return {**states, "cuda": [states["cuda"][device.index or 0]] if states["cuda"] else []}


def _autocast(config: DictConfig, device: torch.device) -> AbstractContextManager[object]:
    precision = str(config.trainer.get("precision") or "32-true")
    if precision not in ("32", "32-true", *_AUTOCAST):
        known = ", ".join(["32-true", *_AUTOCAST])
        raise UserError(f"trainer.precision must be {known} to make a step again, got {precision}")
    dtype = _AUTOCAST.get(precision)
    return torch.autocast(device.type, dtype) if dtype else nullcontext()


@contextmanager
def _nonfinite_outputs(task: Task) -> Iterator[list[str]]:
    """Collect the names of the modules that give what is not finite, each once, innermost first."""
    found: list[str] = []

    def look(name: str) -> Any:
        def hook(module: nn.Module, arguments: Any, output: Any) -> None:
            if name not in found and _nonfinite_tensors(output):
                found.append(name)

        return hook

    handles = [m.register_forward_hook(look(name)) for name, m in task.named_modules() if name]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def _nonfinite_tensors(tree: Any) -> list[str]:
    """Return which tensors of a nested structure are not finite, by place and shape."""
    leaves = tree_flatten(vars(tree) if hasattr(tree, "__dict__") else tree)[0]
    return [
        f"tensor {i} {tuple(leaf.shape)}"
        for i, leaf in enumerate(leaves)
        if isinstance(leaf, Tensor) and not _is_finite(leaf)
    ]


def _is_finite(tensor: Tensor) -> bool:
    values = tensor.values() if tensor.layout == torch.sparse_csr else tensor
    return bool(values.detach().isfinite().all())


def _residuals(task: Task) -> dict[str, dict[str, float]]:
    found = {}
    for name, layer in task.named_modules():
        if isinstance(layer, DEQ):
            solves = {"solver": layer.last_solution, "adjoint": layer.last_adjoint}
            found[name] = {
                solve: max(map(_or_inf, solution.residual.tolist()))
                for solve, solution in solves.items()
                if solution is not None
            }
    return found


def _or_inf(value: float) -> float:
    return math.inf if math.isnan(value) else value


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"not finite: {', '.join(names[:3])}{more}" if names else "all finite"
