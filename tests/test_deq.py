"""The layer: one equilibrium, shared by solve, gradient and adjoint, in all of torch's habits."""

from __future__ import annotations

import copy
import gc
import io
import math
import pickle
import weakref
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

import distributed_worker
from phantomgrad import (
    DEQ,
    AdjointWarning,
    Anderson,
    BackpropThroughSolver,
    Broyden,
    FixedPoint,
    GradientEstimator,
    ImplicitGradient,
    NeumannPhantomGradient,
    Solver,
    UnrolledPhantomGradient,
)
from phantomgrad.nn import Packing, VariationalDropout
from problems import (
    Counted,
    CoupledCell,
    TanhCell,
    exact_gradient,
    newton_equilibrium,
    relative_error,
    saved_tensors,
)

SOLVER = Broyden(max_evaluations=60, tol=1e-12)
PICARD = FixedPoint(max_evaluations=30, tol=0)
ESTIMATORS: dict[str, tuple[Solver, GradientEstimator]] = {
    "implicit": (SOLVER, ImplicitGradient(solver=SOLVER)),
    "implicit, at the image": (SOLVER, ImplicitGradient(solver=SOLVER, at="image")),
    "implicit, order 2": (SOLVER, ImplicitGradient(solver=SOLVER, order=2)),
    "unrolled": (SOLVER, UnrolledPhantomGradient(5, 0.5)),
    "neumann": (SOLVER, NeumannPhantomGradient(5, 0.5)),
    "neumann, of the image": (SOLVER, NeumannPhantomGradient(5, 0.5, "image")),
    "through the solver": (PICARD, BackpropThroughSolver()),
}

every_estimator = pytest.mark.parametrize(
    ("solver", "gradient"), ESTIMATORS.values(), ids=ESTIMATORS
)


def parameter_gradients(deq: DEQ, x: Tensor) -> tuple[Tensor, ...]:
    """The gradients of ``sum z*^2`` by every parameter of the cell."""
    z, _ = deq(x)
    return torch.autograd.grad(z.square().sum(), list(deq.parameters()))


# The equilibrium and its gradient -----------------------------------------------------------


@pytest.mark.parametrize("solver", [FixedPoint(max_evaluations=400), Anderson(), Broyden()])
def test_the_output_is_the_equilibrium_with_its_exact_gradient(solver: Solver) -> None:
    """Value and gradient by inputs and parameters, against Newton and a dense solve."""
    cell, x = TanhCell(), torch.randn(3, 4, requires_grad=True)
    deq = DEQ(cell, replace(solver, tol=1e-12), ImplicitGradient(solver=SOLVER))
    z, solution = deq(x)
    expected = newton_equilibrium(lambda z: cell(z, x), torch.zeros(3, 4))
    torch.testing.assert_close(z, expected, rtol=0, atol=1e-10)
    assert torch.equal(solution.z, z)
    v, wanted = torch.randn(3, 4), [x, *cell.parameters()]
    ours = torch.autograd.grad(z, wanted, v)
    assert relative_error(ours, exact_gradient(lambda z: cell(z, x), expected, v, wanted)) < 1e-9


@every_estimator
def test_tuple_states_are_one_packed_state(solver: Solver, gradient: GradientEstimator) -> None:
    """A cell of two coupled states gives the results of the same cell on their packing."""
    cell, x = CoupledCell(), torch.randn(3, 4, requires_grad=True)
    z0 = (torch.zeros(3, 4), torch.zeros(3, 2, 3))
    packing = Packing.of(z0)

    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = cell

        def forward(self, z: Tensor, x: Tensor) -> Tensor:
            return packing.pack(self.cell(packing.unpack(z), x))

    (a, b), solution = DEQ(cell, solver, gradient)(x, z0=list(z0))
    one, _ = DEQ(Packed(), solver, gradient)(x, z0=torch.zeros(3, 10))
    assert (a.shape, b.shape, solution.z.shape) == ((3, 4), (3, 2, 3), (3, 10))
    torch.testing.assert_close(packing.pack((a, b)), one, rtol=1e-12, atol=1e-12)
    next_a, next_b = cell((a, b), x)
    torch.testing.assert_close((next_a, next_b), (a, b), rtol=0, atol=1e-8)
    wanted = [x, *cell.parameters()]
    ours = torch.autograd.grad(a.sum() + b.square().sum(), wanted)
    parts = packing.unpack(one)
    expected = torch.autograd.grad(parts[0].sum() + parts[1].square().sum(), wanted)
    assert relative_error(ours, expected) < 1e-10


@every_estimator
def test_a_cell_may_take_several_inputs_of_any_kind(
    solver: Solver, gradient: GradientEstimator
) -> None:
    """Everything behind the state is passed on as it is."""

    class Scaled(nn.Module):
        def forward(self, z: Tensor, x: Tensor, scale: float, extra: dict[str, Tensor]) -> Tensor:
            return scale * torch.cos(z) + x + extra["bias"]

    x, bias = torch.zeros(2, 3), torch.full((3,), 0.1, requires_grad=True)
    z, _ = DEQ(Scaled(), solver, gradient)(x, 0.3, {"bias": bias})
    torch.testing.assert_close(z, 0.3 * torch.cos(z) + 0.1)
    z.sum().backward()
    assert bias.grad is not None


def test_the_start_is_zeros_like_the_first_input() -> None:
    """Or what ``z0`` says; and it is not part of the graph."""
    cell = TanhCell()
    points = Counted(lambda z: z)
    seen = cell.register_forward_pre_hook(lambda _, args: (points(args[0]), *args[1:]))
    x, z0 = torch.randn(3, 4), torch.randn(3, 4, requires_grad=True)
    deq = DEQ(cell, PICARD, BackpropThroughSolver())
    deq(x)
    assert torch.equal(points.points[0], torch.zeros(3, 4))
    points.points.clear()
    z, _ = deq(x, z0=z0)
    assert torch.equal(points.points[0], z0)
    assert torch.autograd.grad(z.sum(), z0, allow_unused=True)[0] is None
    seen.remove()


def test_a_start_of_several_states_carries_no_gradient_either() -> None:
    """Not even where the solve itself is on the graph."""
    z0 = (torch.zeros(3, 4, requires_grad=True), torch.zeros(3, 2, 3, requires_grad=True))
    (a, b), _ = DEQ(CoupledCell(), PICARD, BackpropThroughSolver())(torch.randn(3, 4), z0=z0)
    assert torch.autograd.grad(a.sum() + b.sum(), z0, allow_unused=True) == (None, None)


@pytest.mark.parametrize("inputs", [(), ("text",), (3.0,)])
def test_without_a_shape_there_is_an_error(inputs: tuple[object, ...]) -> None:
    """No first tensor, no ``z0``: the message says what is missing."""
    with pytest.raises(ValueError, match="z0 is needed where the first input is no tensor"):
        DEQ(TanhCell(), SOLVER, ImplicitGradient())(*inputs)


def test_integer_inputs_need_a_start() -> None:
    """Token ids are no state."""
    with pytest.raises(ValueError, match=r"z0 must be a floating-point tensor, got torch\.int64"):
        DEQ(TanhCell(), SOLVER, ImplicitGradient())(torch.zeros(2, 4, dtype=torch.long))


def test_a_cell_that_changes_the_shape_is_refused() -> None:
    """By the solver, for one state; by the packing, for several."""
    with pytest.raises(ValueError, match=r"it maps \(2, 3\) to \(2, 4\)"):
        DEQ(nn.Linear(3, 4), SOLVER, ImplicitGradient())(z0=torch.zeros(2, 3))


# Graphs -------------------------------------------------------------------------------------


@every_estimator
def test_no_grad_gives_no_graph(solver: Solver, gradient: GradientEstimator) -> None:
    """And the same equilibrium, with nothing attached and nothing saved."""
    deq, x = DEQ(TanhCell(), solver, gradient), torch.randn(3, 4, requires_grad=True)
    with torch.no_grad(), saved_tensors() as alive:
        z, _ = deq(x)
        assert alive() == 0
    assert not z.requires_grad
    torch.testing.assert_close(z, deq(x)[0].detach(), rtol=1e-9, atol=1e-9)
    with torch.inference_mode():
        torch.testing.assert_close(deq(x)[0].clone(), z, rtol=1e-12, atol=1e-12)


@every_estimator
def test_evaluation_mode_has_gradients(solver: Solver, gradient: GradientEstimator) -> None:
    """Autograd's mode decides, never ``training``."""
    deq, x = DEQ(TanhCell(), solver, gradient), torch.randn(3, 4)
    expected = parameter_gradients(deq, x)
    assert relative_error(parameter_gradients(deq.eval(), x), expected) == 0


@every_estimator
def test_two_forwards_before_one_backward(solver: Solver, gradient: GradientEstimator) -> None:
    """Their gradients add up, in whatever order they were attached."""
    deq, (x, y) = DEQ(TanhCell(), solver, gradient), torch.randn(2, 3, 4)
    expected = [
        a + b for a, b in zip(parameter_gradients(deq, x), parameter_gradients(deq, y), strict=True)
    ]
    first, _ = deq(x)
    second, _ = deq(y)
    loss = second.square().sum() + first.square().sum()
    ours = torch.autograd.grad(loss, list(deq.parameters()))
    assert relative_error(ours, tuple(expected)) < 1e-12


@every_estimator
def test_one_equilibrium_on_top_of_another(solver: Solver, gradient: GradientEstimator) -> None:
    """The same layer, applied to its own result."""
    deq, x = DEQ(TanhCell(), solver, gradient), torch.randn(3, 4, requires_grad=True)
    z, _ = deq(deq(x)[0])
    (grad,) = torch.autograd.grad(z.sum(), x)
    assert grad.isfinite().all()
    assert grad.any()


@every_estimator
def test_a_second_backward_gives_the_same_gradient(
    solver: Solver, gradient: GradientEstimator
) -> None:
    """With ``retain_graph`` the graph serves any number of backward passes, bit for bit."""
    deq, x = DEQ(TanhCell(), solver, gradient), torch.randn(3, 4)
    loss = deq(x)[0].square().sum()
    wanted = list(deq.parameters())
    passes = [torch.autograd.grad(loss, wanted, retain_graph=True) for _ in range(3)]
    for later in passes[1:]:
        for a, b in zip(passes[0], later, strict=True):
            assert torch.equal(a, b)


@every_estimator
def test_samples_do_not_know_each_other(solver: Solver, gradient: GradientEstimator) -> None:
    """Equilibria and input gradients are the same alone and in a batch."""
    deq, x = DEQ(TanhCell(), solver, gradient), torch.randn(4, 4, requires_grad=True)
    z, _ = deq(x)
    (grad,) = torch.autograd.grad(z.square().sum(), x)
    for sample in range(4):
        one = x[sample : sample + 1].detach().requires_grad_()
        alone, _ = deq(one)
        torch.testing.assert_close(alone[0], z[sample], rtol=1e-9, atol=1e-9)
        (ours,) = torch.autograd.grad(alone.square().sum(), one)
        torch.testing.assert_close(ours[0], grad[sample], rtol=1e-9, atol=1e-9)


def test_the_gradient_through_the_solver_is_that_of_a_loop() -> None:
    """See tests/gradients/test_bptt.py; here, that the layer turns recording on."""
    deq, x = DEQ(TanhCell(), PICARD, BackpropThroughSolver()), torch.randn(3, 4)
    z = torch.zeros(3, 4)
    for _ in range(29):
        z = deq.cell(z, x)
    expected = torch.autograd.grad(z.square().sum(), list(deq.parameters()))
    assert relative_error(parameter_gradients(deq, x), expected) < 1e-12


# Copies, pickles, state ---------------------------------------------------------------------


@every_estimator
@pytest.mark.parametrize("used", [False, True])
def test_copies_and_pickles_work_before_and_after_use(
    solver: Solver, gradient: GradientEstimator, used: bool
) -> None:
    """They solve and differentiate like the original."""
    deq, x = DEQ(TanhCell(), solver, gradient), torch.randn(3, 4)
    expected = parameter_gradients(deq, x) if used else None
    stream = io.BytesIO()
    torch.save(deq, stream)
    stream.seek(0)
    loaded = torch.load(stream, weights_only=False)
    for twin in (copy.deepcopy(deq), pickle.loads(pickle.dumps(deq)), loaded):
        ours = parameter_gradients(twin, x)
        assert relative_error(ours, expected or parameter_gradients(deq, x)) == 0


@every_estimator
def test_the_state_dict_holds_the_cell_alone(solver: Solver, gradient: GradientEstimator) -> None:
    """What was found last is a log, not a state."""
    deq = DEQ(TanhCell(), solver, gradient)
    before = set(deq.state_dict())
    parameter_gradients(deq, torch.randn(3, 4))
    assert set(deq.state_dict()) == before == {"cell.linear.weight", "cell.linear.bias"}
    deq.load_state_dict(deq.state_dict(), strict=True)


@every_estimator
def test_the_last_solution_is_kept_without_its_state(
    solver: Solver, gradient: GradientEstimator
) -> None:
    """Residuals and counts, off every graph."""
    deq = DEQ(TanhCell(), solver, gradient)
    assert deq.last_solution is None
    _, solution = deq(torch.randn(3, 4))
    kept = deq.last_solution
    assert kept is not None
    assert kept.z.numel() == 0
    assert not kept.residual.requires_grad
    assert torch.equal(kept.residual, solution.residual)
    assert torch.equal(kept.evaluations, solution.evaluations)


@pytest.mark.parametrize("order", [1, 2])
def test_the_last_adjoint_is_that_of_the_last_backward(order: int) -> None:
    """It is there after a backward pass of an implicit gradient, and only of such."""
    adjoint = Broyden(max_evaluations=60, tol=1e-10)
    deq = DEQ(TanhCell(), SOLVER, ImplicitGradient(solver=adjoint, order=order))
    z, _ = deq(torch.randn(3, 4))
    assert deq.last_adjoint is None
    z.square().sum().backward()
    assert deq.last_adjoint is not None
    assert deq.last_adjoint.z.numel() == 0
    assert deq.last_adjoint.converged.all()
    assert (deq.last_adjoint.evaluations > 2).all()
    phantom = DEQ(TanhCell(), SOLVER, NeumannPhantomGradient(5, 0.5))
    parameter_gradients(phantom, torch.randn(3, 4))
    assert phantom.last_adjoint is None


def test_a_failed_adjoint_warns_from_within_the_layer() -> None:
    """And its residual is there to be logged."""
    short = FixedPoint(max_evaluations=2, tol=1e-9)
    deq = DEQ(TanhCell(), SOLVER, ImplicitGradient(solver=short, failure_residual=1e-3))
    with pytest.warns(AdjointWarning, match="the adjoint solve failed"):
        parameter_gradients(deq, torch.randn(3, 4))
    assert deq.last_adjoint is not None
    assert (deq.last_adjoint.residual > 1e-3).any()


def test_the_repr_shows_solver_and_gradient() -> None:
    """What decides the result is in the printed model."""
    text = repr(DEQ(TanhCell(), FixedPoint(damping=0.7), NeumannPhantomGradient(5, 0.5)))
    assert "FixedPoint(max_evaluations=40" in text
    assert "NeumannPhantomGradient(steps=5, damping=0.5, value='equilibrium')" in text


# Memory -------------------------------------------------------------------------------------


def live_tensors() -> tuple[int, int]:
    """How many tensors Python holds, and the bytes of their storages."""
    gc.collect()
    # Not the tensors without memory that torch.compile keeps in its caches.
    tensors = [o for o in gc.get_objects() if type(o) in (Tensor, nn.Parameter)]
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return len(tensors), sum(storages.values())


@every_estimator
def test_two_hundred_steps_do_not_grow(solver: Solver, gradient: GradientEstimator) -> None:
    """Tensors, their bytes and saved tensors are the same after 200 steps as after 10."""
    deq = DEQ(TanhCell(), replace(solver, max_evaluations=8, record_trace=True), gradient)
    optimizer, x = torch.optim.SGD(deq.parameters(), lr=1e-3), torch.randn(3, 4)

    def train(steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            deq(x)[0].square().sum().backward()
            optimizer.step()

    with saved_tensors() as alive:
        train(10)
        assert alive() == 0
        before = live_tensors()
        train(190)
        assert alive() == 0
        assert live_tensors() == before


@every_estimator
def test_a_forward_without_backward_is_freed_with_its_result(
    solver: Solver, gradient: GradientEstimator
) -> None:
    """Nothing in the layer holds on to a graph, and no cycle waits for the collector."""
    deq = DEQ(TanhCell(), solver, gradient)
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


# Parametrized weights and dropout -----------------------------------------------------------


class CountedNorm(nn.Module):
    """A normalisation that counts how often it is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, weight: Tensor) -> Tensor:
        self.calls += 1
        return 0.8 * weight / torch.linalg.matrix_norm(weight)


@every_estimator
def test_parametrized_weights_are_computed_once_per_forward(
    solver: Solver, gradient: GradientEstimator
) -> None:
    """Solve, attach and adjoint use one weight, and its gradient reaches the original."""
    cell, norm, x = TanhCell(), CountedNorm(), torch.randn(3, 4)
    parametrize.register_parametrization(cell.linear, "weight", norm)
    deq = DEQ(cell, solver, gradient)
    norm.calls = 0
    for forward in (1, 2, 3):
        gradients = parameter_gradients(deq, x)
        assert norm.calls == forward
    plain = TanhCell()
    plain.linear.weight = nn.Parameter(cell.linear.weight.detach().clone())
    plain.linear.bias = nn.Parameter(cell.linear.bias.detach().clone())
    by_weight, by_bias = parameter_gradients(DEQ(plain, solver, gradient), x)
    original = cell.linear.parametrizations["weight"].original  # type: ignore[union-attr, index]
    (through_norm,) = torch.autograd.grad(norm(original), original, by_weight)
    names = [name for name, _ in deq.named_parameters()]
    ours = dict(zip(names, gradients, strict=True))
    assert relative_error((ours["cell.linear.bias"],), (by_bias,)) < 1e-10
    found = ours["cell.linear.parametrizations.weight.original"]
    assert relative_error((found,), (through_norm,)) < 1e-10


@every_estimator
@pytest.mark.parametrize("kind", ["weight_norm", "spectral_norm"])
def test_the_norms_of_torch_train(solver: Solver, gradient: GradientEstimator, kind: str) -> None:
    """Step after step without a stale graph, and the loss goes down."""
    cell, x = TanhCell(norm=0.7), torch.randn(3, 4)
    getattr(parametrizations, kind)(cell.linear)
    deq = DEQ(cell, solver, gradient)
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
def test_one_dropout_mask_per_forward(solver: Solver, gradient: GradientEstimator) -> None:
    """All evaluations of one forward share it, the recorded ones too; the next has another."""
    cell, x = DroppedCell(), torch.randn(3, 12)
    deq = DEQ(cell, replace(solver, max_evaluations=60), gradient)
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
    """Two forwards, two masks, one backward: each gradient is the dense one under its mask."""
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


# The rest of torch --------------------------------------------------------------------------


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
    """Activation recomputation inside f combines with every estimator."""
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
    """Under bfloat16 autocast gradients are close to those without."""
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
    """Two processes under DDP, half a batch each, against one process with the whole batch."""
    torch.multiprocessing.spawn(distributed_worker.train_half, args=(str(tmp_path),), nprocs=2)
    ranks = [torch.load(tmp_path / f"rank{rank}.pt") for rank in (0, 1)]
    for name, estimator in distributed_worker.ESTIMATORS.items():
        model = distributed_worker.Classifier(estimator)
        alone = distributed_worker.gradients(model, distributed_worker.global_batch())
        assert len(alone) == 6
        for found in ranks:
            assert relative_error(tuple(found[name]), tuple(alone)) < 1e-9, name
    assert math.isfinite(relative_error(tuple(ranks[0]["unrolled"]), tuple(ranks[0]["neumann"])))


def test_closed_map_knows_one_tensor() -> None:
    """Of one state as it is, of several joined; off the graph."""
    cell, x, start = CoupledCell(), torch.randn(3, 4), torch.randn(3, 4, requires_grad=True)
    states = (start, torch.randn(3, 2, 3))
    f, z, packing = DEQ(cell, SOLVER, ImplicitGradient()).close_over((x,), states)
    assert packing is not None
    assert not z.requires_grad
    torch.testing.assert_close(packing.unpack(f(z)), cell(states, x))
    single = TanhCell()
    f, z, packing = DEQ(single, SOLVER, ImplicitGradient()).close_over((x,), start)
    assert packing is None
    assert not z.requires_grad
    assert torch.equal(f(z), single(start, x))
