"""Compiled solves equal eager ones, with shared weights and masks, and all derivatives."""

import copy
import pickle
import shutil

import pytest
import torch
import torch._inductor.config
import torch.nn.functional as F
from functorch.compile import make_boxed_func
from problems import TanhCell, relative_error
from small_models import mdeq
from torch._dynamo.backends.common import aot_autograd

import phantomgrad as pg

# Dynamo reads the .grad of every input, which makes torch warn.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")

SHORT = pg.Broyden(max_evaluations=6, tol=0)
SCALES = {"channels": (4, 6), "head_channels": (2, 3)}  # two compile sooner


@pytest.fixture(autouse=True)
def _forget():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


class CountingBackend:
    """A backend that runs graphs eagerly, and counts graphs and calls."""

    def __init__(self):
        self.graphs, self.calls = 0, 0

    def __call__(self, graph, example):
        self.graphs += 1

        def run(*arguments):
            self.calls += 1
            return graph.forward(*arguments)

        return run

    def boxed(self, graph, example):
        """Compile a graph of autograd."""
        return make_boxed_func(self(graph, example))


def trained(model, steps=2):
    """Train for some steps; return losses, all gradients, and a prediction."""
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.nll_loss(model(torch.randn(2, 3, 8, 8)), torch.tensor([0, 3]))
        loss.backward()
        found += [loss.detach(), *(p.grad.clone() for p in model.parameters())]
        optimizer.step()
    with torch.inference_mode():
        found.append(model.eval()(torch.randn(2, 3, 8, 8)).clone())
    return found


@pytest.mark.parametrize("dropout", [0.0, 0.25])
def test_training_is_that_of_the_eager_model(dropout):
    """Losses and gradients, including those of the weight norm, are equal bit for bit.

    The weights change at each step, so a stale one would show. Two graphs are compiled, for
    training and for evaluation.
    """
    adjoint = pg.ImplicitGradient(solver=SHORT, on_failure="ignore")
    eager = mdeq(adjoint, SHORT, dropout=dropout, **SCALES)
    compiled, seen = copy.deepcopy(eager), CountingBackend()
    compiled.deq.compile_solve(backend=seen)
    compiled.deq.check_map = False  # it calls the compiled cell as well
    torch.testing.assert_close(trained(compiled), trained(eager), rtol=0, atol=0)
    assert seen.graphs == 2
    drawn = 1 if dropout else 0  # the evaluation that draws the masks is not compiled
    assert seen.calls == 2 * (6 - drawn) + 6


def test_second_derivatives_work():
    solver, x = pg.Broyden(max_evaluations=40, tol=1e-13), torch.randn(2, 3, requires_grad=True)
    found = []
    for compiled in (False, True):
        deq = pg.DEQ(TanhCell(size=3), solver, pg.ImplicitGradient(solver=solver, order=2))
        if compiled:
            deq.compile_solve(backend="aot_eager")
        z, solution = deq(x)
        (first,) = torch.autograd.grad(z.square().sum(), x, create_graph=True)
        f, _ = deq.close_over((x,), torch.zeros(2, 3))
        generator = torch.Generator().manual_seed(0)
        penalty = pg.jacobian_regularizer(f, solution.z, generator=generator)
        found.append(torch.autograd.grad(first.sum() + penalty, x))
    assert relative_error(*found) < 1e-10


def test_a_recorded_solve_is_not_compiled():
    seen, x = CountingBackend(), torch.randn(2, 4)
    deq = pg.DEQ(TanhCell(), pg.FixedPoint(max_evaluations=4, tol=0), pg.BackpropThroughSolver())
    deq.compile_solve(backend=seen)
    deq.check_map = False
    deq(x)[0].sum().backward()
    assert seen.calls == 0
    with torch.no_grad():
        deq(x)
    assert seen.calls == 4


@pytest.mark.parametrize(
    ("solver", "gradient", "calls"),
    [
        (SHORT, pg.UnrolledPhantomGradient(5, 0.5), (6 + 5, 5)),
        # The last evaluation only tells the residual.
        (pg.FixedPoint(max_evaluations=4, tol=0), pg.BackpropThroughSolver(), (4, 3)),
        (SHORT, pg.NeumannPhantomGradient(5, 0.5), (6, 0)),
    ],
)
def test_recorded_evaluations_are_compiled_with_their_backward(solver, gradient, calls):
    """But not those whose backward serves several products."""
    forwards, backwards, x = CountingBackend(), CountingBackend(), torch.randn(2, 4)
    backend = aot_autograd(fw_compiler=forwards.boxed, bw_compiler=backwards.boxed)
    deq, found = pg.DEQ(TanhCell(), solver, gradient), []
    for compiled in (False, True):
        if compiled:
            deq.compile_solve(recorded=True, backend=backend)
            deq.check_map = False
        found.append(torch.autograd.grad(deq(x).z.sum(), list(deq.parameters())))
    assert relative_error(*found) < 1e-14
    assert (forwards.calls, backwards.calls) == calls


def test_a_compiled_step_refuses_a_second_derivative():
    x = torch.randn(2, 4, requires_grad=True)
    deq = pg.DEQ(TanhCell(), SHORT, pg.UnrolledPhantomGradient(2, 0.5))
    deq.compile_solve(recorded=True, backend="aot_eager")
    (first,) = torch.autograd.grad(deq(x).z.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        first.sum().backward()


def test_state_dict_copies_and_pickles_are_not_compiled():
    model, x = mdeq(solver=SHORT, **SCALES), torch.randn(2, 3, 8, 8)
    keys, expected = list(model.state_dict()), model(x).detach()
    seen = CountingBackend()
    model.deq.compile_solve(backend=seen)
    model(x)
    assert list(model.state_dict()) == keys
    calls = seen.calls
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        torch.testing.assert_close(twin(x).detach(), expected)
    assert seen.calls == calls
    torch.testing.assert_close(model(x).detach(), expected)
    assert seen.calls == calls + 6


def test_batches_of_another_size_run_eagerly():
    seen = CountingBackend()
    deq = pg.DEQ(TanhCell(), SHORT, pg.NeumannPhantomGradient(2, 0.5)).eval()
    deq.compile_solve(batch=3, backend=seen)
    with torch.no_grad():
        for size, calls in ((2, 0), (3, 6), (4, 6)):
            deq(torch.randn(size, 4))
            assert seen.calls == calls
    assert seen.graphs == 1


def test_an_evaluation_outside_of_a_pass_runs_eagerly():
    """A measurement by a hook, whose pass is over, would be compiled once more."""
    seen, maps = CountingBackend(), []
    deq = pg.DEQ(TanhCell(), SHORT, pg.NeumannPhantomGradient(2, 0.5)).eval()
    deq.compile_solve(backend=seen)
    deq.register_pass_hook(lambda layer, f, z, attached: maps.append((f, z)))
    with torch.no_grad():
        z, _ = deq(torch.randn(2, 4))
        f, at = maps[0]
        torch.testing.assert_close(f(at), z, rtol=0.1, atol=0.1)
    assert seen.calls == 6


@pytest.mark.skipif(
    shutil.which("g++") is None and shutil.which("clang++") is None, reason="no C++ compiler"
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
# Neither a pool of compiling processes nor a trial of every instruction set.
@torch._inductor.config.patch({"compile_threads": 1, "cpp.vec_isa_ok": False})
def test_inductor_gives_the_same():
    x = torch.randn(2, 4)
    found = []
    for compiled in (False, True):
        deq = pg.DEQ(TanhCell(), SHORT, pg.NeumannPhantomGradient(3, 0.5))
        if compiled:
            deq.compile_solve()
        z, _ = deq(x)
        found.append((z.detach(), *torch.autograd.grad(z.sum(), list(deq.parameters()))))
    assert relative_error(*found) < 1e-10


def test_hooks_that_a_part_of_the_cell_gets_later_are_called():
    deq, x = pg.DEQ(TanhCell(), SHORT, pg.NeumannPhantomGradient(2, 0.5)), torch.randn(2, 4)
    deq.compile_solve(backend="eager")
    deq.eval()
    with torch.no_grad():
        before = deq(x).z
        hook = deq.cell.linear.register_forward_hook(lambda *call: call[-1] + 1)
        hooked = pg.DEQ(deq.cell, SHORT, deq.gradient).eval()(x).z
        torch.testing.assert_close(deq(x).z, hooked)
        assert relative_error((before,), (hooked,)) > 0.1
        hook.remove()
        torch.testing.assert_close(deq(x).z, before)
