"""Replay a training step with a NaN or infinite gradient outside of its run, to find the cause."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.utilities import move_data_to_device
from omegaconf import OmegaConf
from torch import Tensor, nn
from torch.utils._pytree import keystr, tree_flatten_with_path

from phantomgrad_suite.callbacks.capture import layers_of
from phantomgrad_suite.checkpoint.finite import nonfinite_gradients
from phantomgrad_suite.checkpoint.state import PROVENANCE, set_generators
from phantomgrad_suite.jobs.build import build_data, build_task
from phantomgrad_suite.jobs.numerics import set_float32_precision
from phantomgrad_suite.runs.errors import UserError


def replay(path: Path) -> dict[str, Any]:
    """Replay the step in a file from its batch, parameters, buffers and generators.

    The file is unpickled, which executes code in it: open only files of your own runs. An adaptive
    damping starts from the radius measured in the step.

    Returns the ``step`` (number, row and instance), its ``loss``, the largest residual of each
    ``solve`` and ``adjoint`` solve, and what is not finite: tensors of the ``batch``,
    ``parameters`` and buffers before the step, ``modules`` by their output in the order of the
    forward pass, and parameters by their ``gradients``.

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
    before = [name for name, value in task.state_dict().items() if _nonfinite(value)]
    set_generators(generators)
    batch = move_data_to_device(batch, device)
    with _nonfinite_outputs(task) as modules:
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16-mixed"):
            loss = task.training_step(batch, 0)
        loss.backward()  # type: ignore[no-untyped-call]
    solves = [(x.last_solution, x.last_adjoint) for x in layers_of(task)]
    return {
        "step": f"{content['step'] + 1} of {facts['row']} {facts['instance']}, replayed",
        "loss": loss.item(),
        "batch": _nonfinite(vars(batch) if hasattr(batch, "__dict__") else batch),
        "parameters": before,
        "modules": modules,
        "gradients": nonfinite_gradients(task),
        "solve": [_largest(solve.residual) for solve, _ in solves if solve is not None],
        "adjoint": [_largest(solve.residual) for _, solve in solves if solve is not None],
    }


@contextmanager
def _nonfinite_outputs(task: nn.Module) -> Iterator[list[str]]:
    """Collect the names of the modules with an output that is not finite, innermost first."""
    found: list[str] = []
    names = {module: name for name, module in task.named_modules() if name}

    def look(module: nn.Module, arguments: Any, output: Any) -> None:
        if names[module] not in found and _nonfinite(output):
            found.append(names[module])

    handles = [module.register_forward_hook(look) for module in names]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def _nonfinite(tree: Any) -> list[str]:
    """Return the paths of the tensors of a nested structure that are not finite."""
    return [
        keystr(path)
        for path, leaf in tree_flatten_with_path(tree)[0]
        if isinstance(leaf, Tensor) and not bool(_values(leaf).isfinite().all())
    ]


def _values(tensor: Tensor) -> Tensor:
    return (tensor.values() if tensor.layout == torch.sparse_csr else tensor).detach()


def _largest(residual: Tensor) -> float:
    return float(residual.nan_to_num(nan=torch.inf, posinf=torch.inf).max())
