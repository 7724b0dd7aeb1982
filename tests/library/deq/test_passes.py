"""Shared weights and masks of a pass; compiled, checkpointed, autocast and distributed layers."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import distributed_worker
import pytest
import torch
from methods import SOLVER, Parts, every_estimator, parameter_gradients
from problems import TanhCell, exact_gradient, relative_error
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

from phantomgrad import DEQ, ImplicitGradient
from phantomgrad.nn import VariationalDropout


class CountedNorm(nn.Module):
    """A normalisation that counts how often it is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, weight: Tensor) -> Tensor:
        self.calls += 1
        return 0.8 * weight / torch.linalg.matrix_norm(weight)


@every_estimator
def test_parametrized_weights_are_computed_once_with_their_graph(parts: Parts) -> None:
    cell, norm, x = TanhCell(), CountedNorm(), torch.randn(3, 4)
    parametrize.register_parametrization(cell.linear, "weight", norm)
    deq = DEQ(cell, *parts)
    norm.calls = 0
    for forward in (1, 2, 3):
        gradients = parameter_gradients(deq, x)
        assert norm.calls == forward
    plain = TanhCell()
    plain.linear.weight = nn.Parameter(cell.linear.weight.detach().clone())
    plain.linear.bias = nn.Parameter(cell.linear.bias.detach().clone())
    by_weight, by_bias = parameter_gradients(DEQ(plain, *parts), x)
    original = cell.linear.parametrizations["weight"].original  # type: ignore[union-attr, index]
    (through_norm,) = torch.autograd.grad(norm(original), original, by_weight)
    names = [name for name, _ in deq.named_parameters()]
    ours = dict(zip(names, gradients, strict=True))
    assert relative_error((ours["cell.linear.bias"],), (by_bias,)) < 1e-10
    found = ours["cell.linear.parametrizations.weight.original"]
    assert relative_error((found,), (through_norm,)) < 1e-10


@every_estimator
@pytest.mark.parametrize("kind", ["weight_norm", "spectral_norm"])
def test_layers_with_the_norms_of_torch_learn(parts: Parts, kind: str) -> None:
    cell, x = TanhCell(norm=0.7), torch.randn(3, 4)
    getattr(parametrizations, kind)(cell.linear)
    deq = DEQ(cell, *parts)
    optimizer = torch.optim.SGD(deq.parameters(), lr=0.05)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = deq(x)[0].square().sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[3] < losses[2] < losses[1] < losses[0]


class DroppedCell(nn.Module):
    """A tanh cell with dropout inside the map."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.dropout = TanhCell(size=12), VariationalDropout(0.5)
        self.masks: list[Tensor] = []

    def forward(self, z: Tensor, x: Tensor) -> Tensor:
        dropped: Tensor = self.dropout(self.cell(z, x))
        self.masks.append(self.dropout(torch.ones_like(z)))
        return dropped


@every_estimator
def test_one_dropout_mask_per_forward(parts: Parts) -> None:
    cell, x = DroppedCell(), torch.randn(3, 12)
    deq = DEQ(cell, replace(parts.solver, max_evaluations=60), parts.gradient)
    masks = []
    for _ in range(2):
        cell.masks.clear()
        z, solution = deq(x)
        z.sum().backward()
        assert (solution.residual < 1e-6).all()
        assert all(torch.equal(mask, cell.masks[0]) for mask in cell.masks)
        masks.append(cell.masks[0])
    assert not torch.equal(*masks)


def test_the_adjoint_uses_the_mask_of_its_own_forward() -> None:
    cell, x = DroppedCell(), torch.randn(3, 12, requires_grad=True)
    deq, expected, results = DEQ(cell, SOLVER, ImplicitGradient(solver=SOLVER)), [], []
    for _ in range(2):
        z, _ = deq(x)
        results.append(z)
        mask = cell.masks[-1]
        f = lambda z, mask=mask: mask * cell.cell(z, x)  # noqa: E731
        expected.append(exact_gradient(f, z.detach(), torch.ones(3, 12), [x])[0])
    (ours,) = torch.autograd.grad((results[0] + results[1]).sum(), x)
    assert relative_error((ours,), (expected[0] + expected[1],)) < 1e-9


@every_estimator
def test_a_compiled_cell_gives_equal_results(parts: Parts) -> None:
    """``torch.compile`` of the cell changes neither value nor gradient."""
    cell, x = TanhCell(), torch.randn(3, 4)
    expected = parameter_gradients(DEQ(cell, *parts), x)
    compiled = torch.compile(cell, backend="eager")
    ours = parameter_gradients(DEQ(compiled, *parts), x)  # type: ignore[arg-type]
    assert relative_error(ours, expected) < 1e-12


@every_estimator
def test_checkpointed_cells_give_equal_gradients(parts: Parts) -> None:
    cell, x = TanhCell(), torch.randn(3, 4)

    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = cell

        def forward(self, z: Tensor, x: Tensor) -> Tensor:
            out: Tensor = torch.utils.checkpoint.checkpoint(self.inner, z, x, use_reentrant=False)
            return out

    expected = parameter_gradients(DEQ(cell, *parts), x)
    ours = parameter_gradients(DEQ(Checkpointed(), *parts), x)
    assert relative_error(ours, expected) < 1e-12


@every_estimator
def test_autocast_keeps_the_state_in_full_precision(parts: Parts) -> None:
    cell, x = TanhCell().float(), torch.randn(3, 4, dtype=torch.float32)
    coarse = replace(parts.solver, tol=1e-2)
    gradient = parts.gradient
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
