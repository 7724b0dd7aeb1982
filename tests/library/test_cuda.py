"""Solvers and gradients do not synchronise with a CUDA device; the activity flag."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from mdeq_small import small as small_mdeq
from methods import short_gradients
from problems import Counted, TanhCell
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from transformer_small import PRE_NORM, small, some_memory

from phantomgrad import (
    DEQ,
    Anderson,
    BackpropThroughSolver,
    Broyden,
    FixedPoint,
    GradientEstimator,
    Solver,
)
from phantomgrad.models import Memory, TransformerLM
from phantomgrad.solvers.activity import ActivityFlag
from phantomgrad.solvers.base import SolveState

SOLVERS: dict[str, Solver] = {
    "fixed point": FixedPoint(max_evaluations=12, tol=0),
    "damped": FixedPoint(max_evaluations=12, tol=0, damping=0.7),
    "anderson": Anderson(max_evaluations=12, tol=0, memory=4),
    "broyden": Broyden(max_evaluations=12, tol=0),
    "restarted broyden": Broyden(max_evaluations=12, tol=0, memory=3),
    "broyden, first step": Broyden(max_evaluations=12, tol=0, first_step=-1.0),
    "searched broyden": Broyden(max_evaluations=12, tol=0, line_search=True),
}
GRADIENTS = short_gradients(Broyden(max_evaluations=8, tol=0))

on_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
every_solver = pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)
every_gradient = pytest.mark.parametrize("gradient", GRADIENTS.values(), ids=GRADIENTS)


@contextmanager
def no_synchronisation() -> Iterator[None]:
    """Raise at any synchronisation with the device."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def run_twice(run: Callable[[], object]) -> None:
    for context in (torch.enable_grad, no_synchronisation):
        with context():
            run()


def differentiate(deq: DEQ, x: Tensor) -> None:
    deq.check_map = False  # which reads its result
    torch.autograd.grad(deq(x)[0].square().sum(), list(deq.parameters()))


def solve_and_differentiate(model: TransformerLM, u: Tensor, memory: Memory) -> None:
    """Forward and backward pass of the equilibrium layer."""
    model.deq.check_map = False  # which reads its result
    z, _ = model.deq(model.context(u, memory), z0=model.start(u))
    torch.autograd.grad(z.square().sum(), list(model.cell.parameters()))


@on_cuda
@pytest.mark.parametrize(
    ("solver", "gradient"),
    [
        *itertools.product(SOLVERS.values(), GRADIENTS.values()),
        (SOLVERS["damped"], BackpropThroughSolver()),
    ],
)
def test_a_solve_with_tol_0_does_not_synchronise(
    solver: Solver, gradient: GradientEstimator
) -> None:
    """With ``tol=0`` a solve, a gradient and an adjoint solve only queue work."""
    deq, x = DEQ(TanhCell(), solver, gradient).cuda(), torch.randn(3, 4, device="cuda")
    run_twice(lambda: differentiate(deq, x))


@on_cuda
@every_gradient
def test_mdeq_with_dropout_and_weight_norm_does_not_synchronise(
    gradient: GradientEstimator,
) -> None:
    model = small_mdeq(gradient, SOLVERS["broyden"], dropout=0.25).cuda()
    images = torch.randn(2, 3, 8, 8, device="cuda")
    run_twice(lambda: model(images).sum().backward())


@on_cuda
@every_gradient
@PRE_NORM
def test_transformer_with_memory_does_not_synchronise(
    gradient: GradientEstimator, pre_norm: bool
) -> None:
    model = small(gradient, SOLVERS["broyden"], dropout=0.05, pre_norm=pre_norm).cuda()
    u, memory = torch.randn(3, 5, 24, device="cuda"), some_memory()
    memory = Memory(*(part.cuda() for part in memory))
    run_twice(lambda: solve_and_differentiate(model, u, memory))


@on_cuda
@every_solver
def test_early_stopping_is_at_most_two_evaluations_late(solver: Solver) -> None:
    cell = Counted(TanhCell().cuda().linear)
    z0, stopping = torch.randn(3, 4, device="cuda"), replace(solver, tol=1e-2, max_evaluations=60)
    f = lambda z: torch.tanh(cell(z))  # noqa: E731
    stopping.solve(f, z0)
    cell.points.clear()
    with no_synchronisation():
        solution = stopping.solve(f, z0)
    assert cell.calls <= int(solution.evaluations.max()) + 2
    assert cell.calls < 60


@on_cuda
@every_solver
def test_a_solve_of_the_whole_budget_can_be_captured_as_a_cuda_graph(solver: Solver) -> None:
    cell, z0 = TanhCell().cuda(), torch.zeros(3, 4, device="cuda")
    x = torch.randn(3, 4, device="cuda")
    with torch.no_grad():
        solver.solve(lambda z: cell(z, x), z0)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = solver.solve(lambda z: cell(z, x), z0)
        x.copy_(torch.randn(3, 4))
        graph.replay()
        expected = solver.solve(lambda z: cell(z, x), z0)
    torch.testing.assert_close(captured.z, expected.z)


# --- Without a device -----------------------------------------------------------------------------


@every_solver
def test_with_tol_0_no_flag_is_read_on_an_accelerator(
    solver: Solver, monkeypatch: pytest.MonkeyPatch
) -> None:

    class OnCuda(Tensor):
        is_cuda = True

    def asked(*_: object) -> bool:
        raise AssertionError("asked")

    monkeypatch.setattr(ActivityFlag, "any", asked)
    state = SolveState(solver, torch.zeros(2, 3))
    state._active = state._active.as_subclass(OnCuda)
    assert not state.finished()
    stopping = SolveState(FixedPoint(tol=1e-3), torch.zeros(2, 3))
    with pytest.raises(AssertionError, match="asked"):
        stopping.finished()


@every_gradient
@every_solver
@pytest.mark.filterwarnings("ignore:.*not implemented.*")
def test_no_iteration_reads_a_tensor_value(
    solver: Solver, gradient: GradientEstimator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ActivityFlag, "any", lambda *_: True)
    monkeypatch.setattr(SolveState, "_keep_best", _keep_as_on_cuda)
    with FakeTensorMode():
        deq = DEQ(TanhCellOfZeros(), solver, gradient)
        differentiate(deq, torch.randn(3, 4))


@every_gradient
@PRE_NORM
@pytest.mark.filterwarnings("ignore:.*not implemented.*")
def test_no_iteration_of_the_transformer_reads_a_value(
    gradient: GradientEstimator, pre_norm: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ActivityFlag, "any", lambda *_: True)
    monkeypatch.setattr(SolveState, "_keep_best", _keep_as_on_cuda)
    with FakeTensorMode():
        model = small(gradient, SOLVERS["broyden"], dropout=0.05, pre_norm=pre_norm)
        solve_and_differentiate(model, torch.randn(3, 5, 24), some_memory())


def _keep_as_on_cuda(state: SolveState, z: Tensor, residual: Tensor, improved: Tensor) -> None:
    state._best = torch.where(improved.unsqueeze(1), z, state._best)
    state._best_residual = torch.where(improved, residual, state._best_residual)


class TanhCellOfZeros(torch.nn.Module):
    """``tanh(W z + x)``, constructed without a generator."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, z: Tensor, x: Tensor) -> Tensor:
        return torch.tanh(self.linear(z) + x)


def test_on_the_cpu_the_flag_is_up_to_date() -> None:
    flag = ActivityFlag(torch.device("cpu"))
    rows: list[list[bool]] = [[True, False], [False, False], [True, True], []]
    answers = [flag.any(torch.tensor(row, dtype=torch.bool)) for row in rows]
    assert answers == [True, False, True, False]


@on_cuda
def test_on_cuda_the_flag_is_lag_calls_old() -> None:
    """The first ``lag`` answers are ``True``."""
    flag = ActivityFlag(torch.device("cuda"), lag=2)
    truths = [True, False, True, False, False]
    answers = [flag.any(torch.tensor([truth], device="cuda")) for truth in truths]
    assert answers == [True, True, *truths[:3]]


@on_cuda
def test_on_cuda_a_late_flag_changes_no_result() -> None:
    f = lambda z: 0.5 * z + 1  # noqa: E731
    solver = FixedPoint(tol=1e-6)
    host = solver.solve(f, torch.zeros(4, 3))
    device = solver.solve(f, torch.zeros(4, 3, device="cuda"))
    assert torch.equal(device.evaluations.cpu(), host.evaluations)
    torch.testing.assert_close(device.z.cpu(), host.z, rtol=1e-14, atol=1e-14)
