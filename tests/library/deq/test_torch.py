"""The layer among the rest of torch: compiled, checkpointed, under autocast, distributed."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import distributed_worker
import pytest
import torch
from deq.estimators import every_estimator, parameter_gradients
from problems import TanhCell, relative_error
from torch import Tensor, nn

from phantomgrad import DEQ, GradientEstimator, ImplicitGradient, Solver


@every_estimator
def test_a_compiled_cell_gives_equal_results(solver: Solver, gradient: GradientEstimator) -> None:
    """``torch.compile`` of the cell changes neither value nor gradient."""
    cell, x = TanhCell(), torch.randn(3, 4)
    expected = parameter_gradients(DEQ(cell, solver, gradient), x)
    compiled = torch.compile(cell, backend="eager")
    ours = parameter_gradients(DEQ(compiled, solver, gradient), x)  # type: ignore[arg-type]
    assert relative_error(ours, expected) < 1e-12


@every_estimator
def test_checkpointed_cells_give_equal_gradients(
    solver: Solver, gradient: GradientEstimator
) -> None:
    cell, x = TanhCell(), torch.randn(3, 4)

    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = cell

        def forward(self, z: Tensor, x: Tensor) -> Tensor:
            out: Tensor = torch.utils.checkpoint.checkpoint(self.inner, z, x, use_reentrant=False)
            return out

    expected = parameter_gradients(DEQ(cell, solver, gradient), x)
    ours = parameter_gradients(DEQ(Checkpointed(), solver, gradient), x)
    assert relative_error(ours, expected) < 1e-12


@every_estimator
def test_autocast_keeps_the_state_in_full_precision(
    solver: Solver, gradient: GradientEstimator
) -> None:
    cell, x = TanhCell().float(), torch.randn(3, 4, dtype=torch.float32)
    coarse = replace(solver, tol=1e-2)
    if isinstance(gradient, ImplicitGradient):
        gradient = replace(gradient, solver=replace(gradient.solver, tol=1e-2))
    deq = DEQ(cell, coarse, gradient)
    expected = parameter_gradients(deq, x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z, _ = deq(x)
        loss = z.square().sum()
    assert z.dtype == torch.float32
    ours = torch.autograd.grad(loss, list(deq.parameters()))
    assert relative_error(ours, expected) < 0.1


@pytest.mark.skipif(
    not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
    reason="this build of torch has no gloo backend",
)
def test_distributed_gradients_are_those_of_the_global_batch(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(distributed_worker.train_half, args=(str(tmp_path),), nprocs=2)
    ranks = [torch.load(tmp_path / f"rank{rank}.pt") for rank in (0, 1)]
    for name, estimator in distributed_worker.ESTIMATORS.items():
        model = distributed_worker.Classifier(estimator)
        alone = distributed_worker.gradients(model, distributed_worker.global_batch())
        assert len(alone) == 6
        for found in ranks:
            assert relative_error(tuple(found[name]), tuple(alone)) < 1e-9, name
    assert math.isfinite(relative_error(tuple(ranks[0]["unrolled"]), tuple(ranks[0]["neumann"])))
