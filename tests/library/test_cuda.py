"""Solvers and gradients do not synchronise with a CUDA device; the activity flag."""

import copy
import itertools
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import Mock

import methods
import pytest
import torch
from problems import Counted, TanhCell
from small_models import every_family, mdeq, scores, some_memory, transformer
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map_only

import phantomgrad as pg
from phantomgrad.graphs import Propagation
from phantomgrad.models import Memory
from phantomgrad.solvers.iterative import AnyActive, Progress

SOLVERS = {name: replace(s, max_evaluations=12, tol=0) for name, s in methods.SOLVERS.items()}
SHORT = SOLVERS["broyden"]
ADJOINT = pg.ImplicitGradient(solver=replace(SHORT, max_evaluations=8), on_failure="ignore")
GRADIENTS = {
    "implicit": ADJOINT,
    "implicit, preconditioned": replace(ADJOINT, preconditioner="forward"),
    "implicit, at the image": replace(ADJOINT, at="image"),
    "implicit, GMRES": replace(ADJOINT, solver=pg.GMRES(max_evaluations=8, tol=0)),
    "unrolled": pg.UnrolledPhantomGradient(3, 0.5),
    "neumann": pg.NeumannPhantomGradient(3, 0.5),
    "neumann, of the image": pg.NeumannPhantomGradient(3, 0.5, "image"),
}

on_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
every_solver = pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)
every_gradient = pytest.mark.parametrize("gradient", GRADIENTS.values(), ids=GRADIENTS)


@contextmanager
def no_synchronisation():
    """Raise at any synchronisation with the device."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def run_twice(run):
    for context in (torch.enable_grad, no_synchronisation):
        with context():
            run()


def differentiate(deq, x):
    deq.check_map = False  # which reads its result
    torch.autograd.grad(deq(x)[0].square().sum(), list(deq.parameters()))


def solve_and_differentiate(model, u, memory):
    """Forward and backward pass of the equilibrium layer."""
    model.deq.check_map = False  # which reads its result
    z, _ = model.deq(model.context(u, memory), z0=model.start(u))
    torch.autograd.grad(z.square().sum(), list(model.cell.parameters()))


@on_cuda
@pytest.mark.parametrize(
    ("solver", "gradient"),
    [
        *(
            (solver, gradient)
            for solver, gradient in itertools.product(SOLVERS.values(), GRADIENTS.values())
            if gradient is not GRADIENTS["implicit, preconditioned"] or "Broyden" in repr(solver)
        ),
        (SOLVERS["damped fixed point"], pg.BackpropThroughSolver()),
    ],
)
def test_a_solve_with_tol_0_does_not_synchronise(solver, gradient):
    """With ``tol=0`` a solve, a gradient and an adjoint solve only queue work."""
    deq, x = pg.DEQ(TanhCell(), solver, gradient).cuda(), torch.randn(3, 4, device="cuda")
    run_twice(lambda: differentiate(deq, x))


@on_cuda
@every_gradient
def test_mdeq_with_dropout_and_weight_norm_does_not_synchronise(gradient):
    model = mdeq(gradient, SHORT, dropout=0.25).cuda()
    images = torch.randn(2, 3, 8, 8, device="cuda")
    run_twice(lambda: model(images).sum().backward())


@on_cuda
@every_gradient
@pytest.mark.parametrize("pre_norm", [False, True])
def test_transformer_with_memory_does_not_synchronise(gradient, pre_norm):
    model = transformer(gradient, SHORT, dropout=0.05, pre_norm=pre_norm).cuda()
    u, memory = torch.randn(3, 5, 24, device="cuda"), some_memory()
    memory = Memory(*(part.cuda() for part in memory))
    run_twice(lambda: solve_and_differentiate(model, u, memory))


@on_cuda
@every_solver
def test_early_stopping_is_at_most_two_evaluations_late(solver):
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
def test_a_solve_of_the_whole_budget_can_be_captured_as_a_cuda_graph(solver):
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


@every_solver
def test_with_tol_0_no_flag_is_read_on_an_accelerator(solver, monkeypatch):
    monkeypatch.setattr(AnyActive, "__call__", Mock(side_effect=AssertionError("asked")))
    monkeypatch.setattr("phantomgrad.solvers.iterative.cheap_to_read", lambda _: False)
    assert not Progress(solver, torch.zeros(2, 3)).finished()
    stopping = Progress(pg.FixedPoint(tol=1e-3), torch.zeros(2, 3))
    with pytest.raises(AssertionError, match="asked"):
        stopping.finished()


class Tanh(torch.nn.Linear):
    """``tanh(W z + x)``, constructed without a generator."""

    def forward(self, z, x):
        return torch.tanh(super().forward(z) + x)


@every_gradient
@pytest.mark.filterwarnings("ignore:.*not implemented.*")
def test_no_iteration_reads_a_tensor_value(gradient):
    """Meta tensors, which have no values, take the place of those on a device; of other solvers too
    in the table of "What works where"."""
    with FakeTensorMode():
        differentiate(pg.DEQ(Tanh(4, 4), SHORT, gradient), torch.randn(3, 4))


@pytest.mark.filterwarnings("ignore:.*not implemented.*")
def test_states_on_the_way_read_no_value():
    with FakeTensorMode():
        layer = pg.DEQ(Tanh(4, 4), SHORT, GRADIENTS["unrolled"])
        states, _ = layer(torch.randn(3, 4), record_at=(2, 5))
        sum(z.square().sum() for z in states).backward()


@pytest.mark.filterwarnings("ignore:.*not implemented.*")
def test_the_cell_of_the_transformer_reads_no_value():
    with FakeTensorMode():
        model = transformer(dropout=0.05, pre_norm=True)
        f, z = model.deq.close_over(
            (model.context(torch.randn(3, 5, 24), some_memory()),), torch.randn(3, 5, 8)
        )
        f(z).sum().backward()


@on_cuda
def test_on_cuda_the_flag_is_lag_calls_old():
    """The first ``lag`` answers are ``True``."""
    flag = AnyActive(torch.zeros(2, device="cuda"), lag=2)
    truths = [True, False, True, False, False]
    answers = [flag(torch.tensor([truth], device="cuda")) for truth in truths]
    assert answers == [True, True, *truths[:3]]


@on_cuda
def test_on_cuda_a_late_flag_changes_no_result():
    f = lambda z: 0.5 * z + 1  # noqa: E731
    solver = pg.FixedPoint(tol=1e-6)
    host = solver.solve(f, torch.zeros(4, 3))
    device = solver.solve(f, torch.zeros(4, 3, device="cuda"))
    assert torch.equal(device.evaluations.cpu(), host.evaluations)
    torch.testing.assert_close(device.z.cpu(), host.z, rtol=1e-14, atol=1e-14)


PAIRS = {
    **{name: (parts.solver, parts.gradient) for name, parts in methods.ESTIMATORS.items()},
    **{f"implicit after {name}": (solver, ADJOINT) for name, solver in SOLVERS.items()},
}


def loss_and_gradients(model, arguments):
    loss = scores(model, arguments).square().sum()
    return loss, *torch.autograd.grad(loss, list(model.parameters()))


@on_cuda
@pytest.mark.parametrize(("solver", "gradient"), PAIRS.values(), ids=PAIRS)
@every_family
def test_loss_and_gradients_are_those_of_the_cpu(family, solver, gradient):
    model, arguments = family.build(gradient, solver), family.arguments()
    twin = copy.deepcopy(model).cuda()
    on_device = tree_map_only(torch.Tensor, torch.Tensor.cuda, arguments)
    found = [x.cpu() for x in loss_and_gradients(twin, on_device)]
    torch.testing.assert_close(found, [*loss_and_gradients(model, arguments)], rtol=1e-6, atol=1e-9)


@on_cuda
def test_a_sparse_product_reads_no_uninitialised_memory():
    """Freed blocks full of NaN are what the allocator hands out next."""
    p = Propagation(torch.eye(64).to_sparse())
    x = torch.randn(64, 256)
    on_device, operator = x.cuda(), p.to("cuda")
    freed = [torch.full((64, 256), torch.nan, device="cuda") for _ in range(4)]
    del freed
    torch.testing.assert_close(operator(on_device).cpu(), x)
