"""Replay a training step with a NaN or infinite gradient outside of its run, to find the cause."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.utilities import move_data_to_device
from omegaconf import OmegaConf
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from phantomgrad.deq import DEQ
from phantomgrad_suite.checkpoint.finite import nonfinite_gradients
from phantomgrad_suite.checkpoint.state import PROVENANCE, set_generators
from phantomgrad_suite.jobs.build import build_data, build_task
from phantomgrad_suite.jobs.numerics import set_float32_precision
from phantomgrad_suite.runs.errors import UserError


@dataclass(frozen=True)
class Replay:
    """What a step does when it is replayed.

    Attributes:
        title: number of the step, row and instance of the run.
        loss: of the step.
        nonfinite: the tensors of the ``batch``, the ``parameters`` and buffers before the step,
            the ``modules`` by their output in the order of the forward pass, and the parameters
            by their ``gradients`` that are not finite.
        layers: of each equilibrium layer, by name, the largest residual of its solve and, under
            implicit differentiation, of the adjoint solve.
    """

    title: str
    loss: float
    nonfinite: dict[str, list[str]]
    layers: dict[str, dict[str, float]]

    def __str__(self) -> str:
        lines = [self.title, f"{'loss':<17} {self.loss}"]
        for part, names in self.nonfinite.items():
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            found = f"not finite: {', '.join(names[:3])}{more}" if names else "all finite"
            lines.append(f"{part:<17} {found}")
        for name, residuals in self.layers.items():
            found = ", ".join(f"{solve} residual {value:.3g}" for solve, value in residuals.items())
            lines.append(f"{name:<17} {found}")
        return "\n".join(lines)


def replay(path: Path) -> Replay:
    """Replay the step in a file from its batch, parameters, buffers and generators.

    The file is unpickled, which executes code in it: open only files of your own runs. An adaptive
    damping starts from the radius measured in the step.

    Raises:
        UserError: the file holds no step, or its data set, device or precision is not available.
    """
    try:
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=False)
        batch, generators, facts = (content[k] for k in ("batch", "generators", PROVENANCE))
    except Exception as error:
        raise UserError(
            f"{path} holds no step to replay ({type(error).__name__}: {error}): choose a file in "
            "runs/.../nonfinite"
        ) from error
    config, device = OmegaConf.create(facts["config"]), torch.device(content["device"])
    precision = str(config.trainer.get("precision") or "32-true")
    if precision not in ("32-true", "32", "bf16-mixed"):
        raise UserError(f"a step under trainer.precision={precision} cannot be replayed")
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise UserError(f"the step was made on {device}, and there is no such device here")
        generators["cuda"] = [generators["cuda"][device.index or 0]]
        device = torch.device("cuda")
    set_float32_precision(config.matmul_precision)
    task = build_task(config, build_data(config))
    task.load_state_dict(content["state_dict"])
    task.to(device).train()
    task.steps_before = content["step"]
    task.carry(content["carried"])
    before = [name for name, value in task.state_dict().items() if not _is_finite(value)]
    set_generators(generators)
    batch = move_data_to_device(batch, device)
    with _nonfinite_outputs(task) as modules:
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16-mixed"):
            loss = task.training_step(batch, 0)
        loss.backward()  # type: ignore[no-untyped-call]
    return Replay(
        title=f"step {content['step'] + 1} of {facts['row']} {facts['instance']}, replayed",
        loss=loss.item(),
        nonfinite={
            "batch": _nonfinite_tensors(batch),
            "parameters": before,
            "modules": modules,
            "gradients": nonfinite_gradients(task),
        },
        layers={n: _residuals(m) for n, m in task.named_modules() if isinstance(m, DEQ)},
    )


@contextmanager
def _nonfinite_outputs(task: nn.Module) -> Iterator[list[str]]:
    """Collect the names of the modules with an output that is not finite, innermost first."""
    found: list[str] = []
    names = {module: name for name, module in task.named_modules() if name}

    def look(module: nn.Module, arguments: Any, output: Any) -> None:
        if names[module] not in found and _nonfinite_tensors(output):
            found.append(names[module])

    handles = [module.register_forward_hook(look) for module in names]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def _nonfinite_tensors(tree: Any) -> list[str]:
    """Return which tensors of a nested structure are not finite, by position and shape."""
    leaves = tree_flatten(vars(tree) if hasattr(tree, "__dict__") else tree)[0]
    return [
        f"tensor {i} {tuple(leaf.shape)}"
        for i, leaf in enumerate(leaves)
        if isinstance(leaf, Tensor) and not _is_finite(leaf)
    ]


def _is_finite(tensor: Tensor) -> bool:
    values = tensor.values() if tensor.layout == torch.sparse_csr else tensor
    return bool(values.detach().isfinite().all())


def _residuals(layer: DEQ) -> dict[str, float]:
    solves = {"solver": layer.last_solution, "adjoint": layer.last_adjoint}
    return {
        name: max(math.inf if math.isnan(r) else r for r in solution.residual.tolist())
        for name, solution in solves.items()
        if solution is not None
    }
