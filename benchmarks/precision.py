"""What bf16 does to the gradient of a training step: finished runs, with first and last weights.

    OMP_NUM_THREADS=1 python benchmarks/precision.py runs/digits/implicit/seed0 ...

A line has the agreement of the gradient under ``bf16-mixed`` with that in float32, and the largest
residuals of both. Both take the first batch of the run's data, the same weights and dropout masks,
and solve, also where the run would begin with pretraining. Texts begin with an empty memory.
Solvers compute their own products in float32 in either.
"""

import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch
from torch import Tensor

from phantomgrad.diagnostics import agreement
from phantomgrad_suite.callbacks.capture import layers_of
from phantomgrad_suite.jobs.build import build_data, build_task
from phantomgrad_suite.jobs.trained import configuration, read_run, read_weights
from phantomgrad_suite.tasks import Task


class Step(NamedTuple):
    """The gradient of the loss of a batch, and the largest residual of the solves."""

    gradient: list[Tensor]
    residual: float


def step(task: Task, batch: Any, precision: AbstractContextManager[Any]) -> Step:
    """Make a training step up to the optimizer."""
    task.zero_grad()
    with precision:
        loss = task.training_step(batch, 0)
    loss.backward()  # type: ignore[no-untyped-call]
    solves = [solution for x in layers_of(task.model) if (solution := x.last_solution)]
    gradient = [p.grad.clone() for p in task.model.parameters() if p.grad is not None]
    return Step(gradient, max(float(solve.residual.max()) for solve in solves))


def compare(folder: Path) -> list[dict[str, str]]:
    """Return the lines of a finished run."""
    record = read_run(folder)
    config = configuration(record)
    seed = config.seed + (config.dataset.get("fold") or 0)
    torch.manual_seed(seed)  # of the order of the batches
    data = build_data(config)
    data.setup("fit")
    batch = data.on_after_batch_transfer(next(iter(data.train_dataloader())), 0)
    weights = read_weights(folder, record.weights["last"])
    lines = []
    for when in ("first", "last"):
        steps = []
        for precision in (
            nullcontext(),
            torch.autocast("cpu", torch.bfloat16, cache_enabled=False),
        ):
            torch.manual_seed(seed)  # of the first weights, and the masks
            task = build_task(config, data).train()
            task.pretrain(0, 1)  # the stage that solves
            if when == "last":
                task.model.load_state_dict(weights)
            steps.append(step(task, batch, precision))
        exact, lowered = steps
        found = agreement(lowered.gradient, exact.gradient)
        lines.append(
            {
                "run": f"{record.row}, {record.instance}",
                "weights": when,
                "cosine": f"{found.cosine:.4f}",
                "norm ratio": f"{found.norm_ratio:.3f}",
                "residual": f"{exact.residual:.1e}",
                "residual, bf16": f"{lowered.residual:.1e}",
            }
        )
    return lines


if __name__ == "__main__":
    found = [line for folder in sys.argv[1:] for line in compare(Path(folder))]
    print(pd.DataFrame(found).to_markdown(index=False, disable_numparse=True))
