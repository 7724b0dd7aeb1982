"""Every solver, every gradient estimator with a solver for it, and every way to copy a model."""

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from problems import Map, TanhCell
from torch import Tensor, nn

import phantomgrad as pg
from phantomgrad.nn import NormedLinear, VariationalDropout, current_pass, recomputed


class Parts(NamedTuple):
    """An estimator and a solver for it."""

    solver: pg.Solver
    gradient: pg.GradientEstimator


SOLVER = pg.Broyden(max_evaluations=60, tol=1e-12)
GMRES = pg.GMRES(max_evaluations=60, tol=1e-12)
PICARD = pg.FixedPoint(max_evaluations=30, tol=0)
ESTIMATORS = {
    "implicit": Parts(SOLVER, pg.ImplicitGradient(solver=SOLVER)),
    "implicit, at the image": Parts(SOLVER, pg.ImplicitGradient(solver=SOLVER, at="image")),
    "implicit, order 2": Parts(SOLVER, pg.ImplicitGradient(solver=SOLVER, order=2)),
    "implicit, GMRES": Parts(SOLVER, pg.ImplicitGradient(solver=GMRES)),
    "implicit, preconditioned": Parts(
        SOLVER, pg.ImplicitGradient(solver=SOLVER, preconditioner="forward")
    ),
    "unrolled": Parts(SOLVER, pg.UnrolledPhantomGradient(5, 0.5)),
    "neumann": Parts(SOLVER, pg.NeumannPhantomGradient(5, 0.5)),
    "neumann, of the image": Parts(SOLVER, pg.NeumannPhantomGradient(5, 0.5, "image")),
    "through the solver": Parts(PICARD, pg.BackpropThroughSolver()),
    "through the reversible solver": Parts(
        pg.Reversible(max_evaluations=121, tol=0, backward_tol=1e-13), pg.BackpropThroughSolver()
    ),
}
every_estimator = pytest.mark.parametrize("parts", ESTIMATORS.values(), ids=ESTIMATORS)


def parameter_gradients(deq: pg.DEQ, x: Tensor) -> tuple[Tensor, ...]:
    """The gradients of ``sum z*^2`` by every parameter of the cell."""
    z, _ = deq(x)
    return torch.autograd.grad(z.square().sum(), list(deq.parameters()))


class Kept(list[Any]):
    """A list that copies of its owner share."""

    def __deepcopy__(self, memo: Any) -> "Kept":
        return self


class DroppedCell(TanhCell):
    """A tanh cell with dropout inside the map; records the mask of every evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = VariationalDropout(0.5)
        self.masks = Kept()

    def forward(self, z: Tensor, x: Tensor) -> Tensor:
        out: Tensor = self.dropout(super().forward(z, x))
        held = current_pass()
        self.masks.append(None if held is None else held.masks.get(held.key(self.dropout)))
        return out


class RecomputedCell(nn.Module):
    """Weight norm and dropout around a nonlinearity, which may be recomputed."""

    def __init__(self, again: bool = True) -> None:
        super().__init__()
        self.inner = nn.Sequential(NormedLinear(4, 8), nn.Tanh(), VariationalDropout(0.3))
        self.outer = NormedLinear(8, 4)
        self._again = again

    def forward(self, z: Tensor, x: Tensor, *, more: Tensor | float = 1.0) -> Tensor:
        inner = recomputed(self.inner, z) if self._again else self.inner(z)
        return (0.2 * self.outer(inner) + x) * more


SOLVERS: dict[str, pg.Solver] = {
    "fixed point": pg.FixedPoint(),
    "damped fixed point": pg.FixedPoint(damping=0.7),
    "anderson": pg.Anderson(),
    "short anderson": pg.Anderson(memory=2, damping=0.8),
    "broyden": pg.Broyden(),
    "short broyden": pg.Broyden(memory=3),
}
every_solver = pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)
every_stop = pytest.mark.parametrize("stop", ["relative", "absolute"])
every_norm = pytest.mark.parametrize("norm", ["l2", "rms", "max"])


def tanh_map(batch: int = 4, size: int = 5, norm: float = 0.9) -> Map:
    """A contraction; samples of high index are closer to saturation and converge sooner."""
    cell, x = TanhCell(size, norm), torch.linspace(0, 3, batch).unsqueeze(1).repeat(1, size)
    return lambda z: cell(z, x[: len(z)]).detach()


def residual_of(solver: pg.Solver, f: Map, z: Tensor) -> Tensor:
    """The documented residual."""
    fz = f(z).flatten(1)
    g = fz - z.flatten(1)
    order = torch.inf if solver.norm == "max" else 2
    scale = g.shape[1] ** -0.5 if solver.norm == "rms" else 1
    size = scale * torch.linalg.vector_norm(g, ord=order, dim=1)
    if solver.stop == "relative":
        size = size / (scale * torch.linalg.vector_norm(fz, ord=order, dim=1))
    return size


def assert_twins(build: Callable[[], nn.Module], loss: Callable[[nn.Module], Tensor]) -> None:
    """Every twin of a used model computes the same with parameters of its own.

    Making it draws no random number.
    """
    model = build()
    loss(model).backward()
    model.zero_grad()
    empty, before = build(), torch.random.get_rng_state()
    empty.load_state_dict(model.state_dict(), strict=True)
    stream = io.BytesIO()
    torch.save(model, stream)
    stream.seek(0)
    loaded = torch.load(stream, weights_only=False)
    twins = [empty, loaded, copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    assert torch.equal(torch.random.get_rng_state(), before)
    loss(model).backward()
    for twin in twins:
        loss(twin).backward()
        pairs = zip(model.named_parameters(), twin.named_parameters(), strict=True)
        for (name, ours), (twin_name, theirs) in pairs:
            assert name == twin_name
            assert torch.equal(ours, theirs)
            assert ours.data_ptr() != theirs.data_ptr()
            assert torch.equal(ours.grad, theirs.grad)


def reversible(evaluations: int, damping: float = 0.5, **settings: Any) -> pg.Reversible:
    """One that spends its budget, with an accurate backward pass."""
    settings = {"tol": 0, "backward_tol": 1e-13, **settings}
    return pg.Reversible(max_evaluations=evaluations, damping=damping, **settings)
