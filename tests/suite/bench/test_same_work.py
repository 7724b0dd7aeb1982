"""Both sides of the benchmark do the same work: evaluations, equilibria, gradients."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from bench.sides import CPU, needs_peer
from torch import Tensor, nn

from phantomgrad import DEQ, Anderson, Broyden, FixedPoint, ImplicitGradient, Solver
from phantomgrad.gradients import (
    GradientEstimator,
    NeumannPhantomGradient,
    UnrolledPhantomGradient,
)
from phantomgrad_suite.bench.contest import IMPLICIT, OURS, PEER, Case
from phantomgrad_suite.bench.peer import HOISTED, PeerSolver, get_layer, use_peer
from phantomgrad_suite.bench.solves import elementwise_map, solver_cases
from phantomgrad_suite.bench.steps import mdeq, step_cases, transformer
from phantomgrad_suite.studies.meters import Clock

BUILDS = {"MDEQ": partial(mdeq, "tiny", 1, side=8), "Transformer": partial(transformer, 2, 3)}
SOLVED = Broyden(max_evaluations=200, tol=1e-11)
GRADIENTS = {"implicit": ImplicitGradient(solver=SOLVED), "UPG": UnrolledPhantomGradient(5, 0.8)}


def runs_of(case: Case) -> dict[str, int]:
    """The evaluations of f in a run of each contender."""
    clock = Clock(CPU)
    return {name: build(clock)().evaluations for name, build in case.contenders.items()}


@needs_peer
@pytest.mark.parametrize("case", solver_cases([(4, 3, 5)], evaluations=9), ids=lambda c: c.name)
def test_both_solvers_spend_the_same_evaluations(case: Case) -> None:
    """The whole budget, as the tolerance is zero."""
    assert runs_of(case) == {OURS: 9, PEER: 9}


@needs_peer
@pytest.mark.parametrize("solver", [FixedPoint(), Anderson(), Broyden()], ids=repr)
def test_both_solvers_find_the_same_equilibrium(solver: Solver) -> None:
    f, z0 = elementwise_map((4, 3, 5), CPU), torch.zeros(4, 3, 5)
    solver = replace(solver, max_evaluations=80, tol=0)
    theirs = PeerSolver(solver).solve(f, z0)
    torch.testing.assert_close(theirs, solver.solve(f, z0).z, rtol=0, atol=1e-5)


def gradients_of(
    model: str, gradient: GradientEstimator, *, peer: bool = False, whole: bool = False
) -> dict[str, Tensor]:
    """The gradient of every parameter in a step, with the same masks on both sides.

    The weights of the cell are scaled so that solvers converge, but not at once.
    """
    built, loss = BUILDS[model](SOLVED, gradient, CPU)
    with torch.no_grad():
        for name, parameter in built.deq.named_parameters():  # type: ignore[operator, union-attr]
            if model == "MDEQ":
                parameter.mul_(0.3)
            elif name.endswith("original0"):  # the norms of the weight-normed kernels
                parameter.mul_(2)
    if peer:
        use_peer(built, whole=whole)
    torch.manual_seed(1)
    loss().backward()  # type: ignore[no-untyped-call]
    return {
        name.replace("cell.cell.", "cell."): parameter.grad
        for name, parameter in built.named_parameters()
        if parameter.grad is not None
    }


@needs_peer
@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize(
    ("model", "whole"), [("MDEQ", False), ("Transformer", False), ("Transformer", True)]
)
def test_both_sides_compute_the_same_gradients(model: str, whole: bool, gradient: str) -> None:
    """Of every parameter, whether the context of the cell is computed once or every time."""
    ours = gradients_of(model, GRADIENTS[gradient])
    theirs = gradients_of(model, GRADIENTS[gradient], peer=True, whole=whole)
    assert ours.keys() == theirs.keys()
    for name, expected in ours.items():
        error = torch.linalg.vector_norm(theirs[name] - expected)
        assert error <= 1e-4 * torch.linalg.vector_norm(expected) + 1e-12, name


@needs_peer
@pytest.mark.parametrize(("model", "hoisted"), [("MDEQ", False), ("Transformer", True)])
def test_a_step_spends_the_same_budget_on_all_sides(model: str, hoisted: bool) -> None:
    """The peer's implicit gradient evaluates f once more, in its backward pass."""
    solvers = {"solver": Broyden(max_evaluations=9, tol=0), "adjoint": Broyden(max_evaluations=4)}
    implicit, phantom = step_cases("any", BUILDS[model], **solvers, hoisted=hoisted)
    peers = [PEER, HOISTED] if hoisted else [PEER]
    assert runs_of(implicit) == {OURS: 9 + 1, **dict.fromkeys(peers, 9 + 2)}
    assert runs_of(phantom) == {OURS: 9 + 5, IMPLICIT: 9 + 1, **dict.fromkeys(peers, 9 + 5)}


def test_ours_tells_the_time_outside_f() -> None:
    """It is part of the solves, which are part of the step."""
    solver = Broyden(max_evaluations=4, tol=0)
    implicit, _ = step_cases("any", BUILDS["MDEQ"], solver=solver, adjoint=solver)
    seconds = implicit.contenders[OURS](Clock(CPU))().seconds
    assert 0 < seconds["outside f"] < seconds["solves"] < seconds["step"]
    assert seconds["step in f"] == seconds["step"] - seconds["outside f"]
    assert seconds["step"] == pytest.approx(seconds["forward"] + seconds["backward"])


@pytest.mark.parametrize("model", BUILDS)
def test_every_contender_has_a_model_of_its_own_with_the_same_weights(model: str) -> None:
    (first, _), (second, _) = (BUILDS[model](SOLVED, GRADIENTS["UPG"], CPU) for _ in range(2))
    pairs = zip(first.parameters(), second.parameters(), strict=True)
    assert all(torch.equal(a, b) and a is not b for a, b in pairs)


class CountingCell(nn.Module):
    """A map with a context, which counts how often that is computed."""

    contexts = 0

    def context(self, x: Tensor) -> Tensor:
        self.contexts += 1
        return 2 * x

    def forward(self, z: Tensor, context: Tensor) -> Tensor:
        return z / 4 + context


@needs_peer
@pytest.mark.parametrize(("whole", "contexts"), [(False, 1), (True, 6 + 5)])
def test_the_context_of_a_whole_cell_is_computed_at_every_evaluation(
    whole: bool, contexts: int
) -> None:
    cell, x = CountingCell(), torch.ones(2, 3)
    solver = FixedPoint(max_evaluations=6, tol=0)
    model = nn.ModuleDict({"deq": DEQ(cell, solver, GRADIENTS["UPG"])})
    use_peer(model, whole=whole)
    layer = model["deq"]
    layer(layer.cell.context(x), z0=torch.zeros_like(x))
    assert cell.contexts == contexts


@needs_peer
def test_a_gradient_without_counterpart_is_refused() -> None:
    with pytest.raises(TypeError, match="torchdeq has no counterpart of NeumannPhantomGradient"):
        get_layer(SOLVED, NeumannPhantomGradient(5, 0.5))
