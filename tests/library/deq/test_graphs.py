"""When a layer records a graph, how often it can be used, and when it is freed."""

import gc
import weakref
from dataclasses import replace

import pytest
import torch
from methods import ESTIMATORS, SOLVERS, every_estimator, parameter_gradients
from problems import TanhCell, relative_error, saved_tensors
from torch import Tensor, nn

from phantomgrad import DEQ, Broyden, Reversible, Steps

NAN_SOLVERS = {
    **{name: replace(solver, max_evaluations=20, tol=1e-9) for name, solver in SOLVERS.items()},
    "reversible": Reversible(max_evaluations=20, tol=1e-9, backward_tol=1e-12),
    "steps": Steps(3),
}


@every_estimator
def test_no_grad_gives_no_graph(parts):
    deq, x = DEQ(TanhCell(), *parts), torch.randn(3, 4, requires_grad=True)
    with torch.no_grad(), saved_tensors() as alive:
        z, _ = deq(x)
        assert alive() == 0
    assert not z.requires_grad
    torch.testing.assert_close(z, deq(x)[0].detach(), rtol=1e-9, atol=1e-9)
    with torch.inference_mode():
        torch.testing.assert_close(deq(x)[0].clone(), z, rtol=1e-12, atol=1e-12)


@every_estimator
def test_evaluation_mode_gives_the_same_gradients(parts):
    """The autograd mode decides, never ``training``."""
    deq, x = DEQ(TanhCell(), *parts), torch.randn(3, 4)
    expected = parameter_gradients(deq, x)
    assert relative_error(parameter_gradients(deq.eval(), x), expected) == 0


@every_estimator
def test_two_forwards_before_two_backwards(parts):
    """With ``retain_graph`` a graph serves any number of backward passes, bit for bit."""
    deq, (x, y) = DEQ(TanhCell(), *parts), torch.randn(2, 3, 4)
    alone, wanted = [parameter_gradients(deq, given) for given in (x, y)], list(deq.parameters())
    loss = deq(x)[0].square().sum() + deq(y)[0].square().sum()
    first, second = (torch.autograd.grad(loss, wanted, retain_graph=True) for _ in range(2))
    assert relative_error(first, tuple(a + b for a, b in zip(*alone, strict=True))) < 1e-12
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def live_tensors():
    """How many tensors Python holds, and the bytes of their storages."""
    gc.collect()
    # Not the tensors without memory that torch.compile keeps in its caches.
    tensors = [o for o in gc.get_objects() if type(o) in (Tensor, nn.Parameter)]
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return len(tensors), sum(storages.values())


def test_memory_does_not_grow_over_training_steps():
    layers, x = [], torch.randn(3, 4)
    for solver, gradient in ESTIMATORS.values():
        short = replace(solver, max_evaluations=8, record_trace=True)
        layers.append(DEQ(TanhCell(), short, gradient))
    optimizer = torch.optim.SGD([p for deq in layers for p in deq.parameters()], lr=1e-3)

    def train(steps):
        for _ in range(steps):
            optimizer.zero_grad()
            for deq in layers:
                deq(x)[0].square().sum().backward()
            optimizer.step()

    with saved_tensors() as alive:
        train(3)
        before = live_tensors()
        train(6)
        assert alive() == 0
        assert live_tensors() == before


@every_estimator
def test_a_forward_without_backward_is_freed_with_its_result(parts):
    deq = DEQ(TanhCell(), *parts)
    gc.disable()
    try:
        with saved_tensors() as alive:
            z, solution = deq(torch.randn(3, 4))
            assert alive() > 0
            reference = weakref.ref(z)
            del z, solution
            assert reference() is None
            assert alive() == 0
    finally:
        gc.enable()


class Failing(TanhCell):
    """``nan`` for a sample whose state is at its ``mark``."""

    def forward(self, z, x, mark):
        there = (z - mark).abs().amax(dim=1, keepdim=True) < 1e-9
        return torch.where(there, torch.nan, super().forward(z, x))


@pytest.mark.filterwarnings("ignore:the adjoint solve failed")
@pytest.mark.parametrize("solver", NAN_SOLVERS.values(), ids=NAN_SOLVERS)
def test_samples_that_become_nan_are_as_if_left_out(solver):
    """One from its first evaluation, one from its third; with every gradient."""
    cell, x, others = Failing(), torch.randn(4, 4), [0, 2]
    mark, states = torch.full_like(x, torch.inf), list[Tensor]()
    with torch.no_grad():
        solver.solve(lambda z: states.append(z.clone()) or cell(z, x, mark), torch.zeros_like(x))
    mark[1], mark[3] = 0, states[2][3]
    refused = []
    for name, (_, gradient) in ESTIMATORS.items():
        try:
            deq = DEQ(cell, solver, gradient)
        except ValueError:
            refused.append(name)
            continue
        deq.check_map, found = False, []
        for rows in ([0, 1, 2, 3], others):
            given = x[rows].requires_grad_()
            z, solution = deq(given, mark[rows])
            kept = [rows.index(i) for i in others]
            (slope,) = torch.autograd.grad(z[kept].square().sum(), given)
            found.append((z[kept].detach(), slope[kept]))
            if len(rows) == 4:
                assert z[1].isnan().all()
                assert solution.diverged[[1, 3]].all()
        torch.testing.assert_close(*found, rtol=1e-12, atol=1e-12)
    recorded = ["through the solver", "through the reversible solver"]
    expected = [] if isinstance(solver, Broyden) else ["implicit, preconditioned"]
    assert refused == expected + ([] if solver.differentiable else recorded)
