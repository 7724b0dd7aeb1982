"""Both sides of the benchmark do the same work: evaluations, equilibria, gradients."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor

from phantomgrad import Anderson, Broyden, FixedPoint, ImplicitGradient, Solver
from phantomgrad.gradients import GradientEstimator, NeumannPhantomGradient, UnrolledPhantomGradient
from phantomgrad_suite.bench import peer
from phantomgrad_suite.bench.cases import (
    elementwise_map,
    mdeq,
    solver_cases,
    step_cases,
    transformer,
)
from phantomgrad_suite.bench.contest import OURS, PEER, Case
from phantomgrad_suite.bench.peer import HOISTED, PeerSolver, get_layer, use_peer
from phantomgrad_suite.studies.meters import Clock

CPU = torch.device("cpu")
needs_peer = pytest.mark.skipif(peer.version() is None, reason=peer.MISSING)
BUILDS = {"MDEQ": partial(mdeq, "tiny", 1, side=8), "Transformer": partial(transformer, 2, 3)}
SOLVED = Broyden(max_evaluations=200, tol=1e-8)
GRADIENTS = {"implicit": ImplicitGradient(solver=SOLVED), "UPG": UnrolledPhantomGradient(5, 0.8)}


def runs_of(case: Case) -> dict[str, int]:
    """The evaluations of f in a run of each contender."""
    clock = Clock(CPU)
    return {name: build(clock)().evaluations for name, build in case.contenders.items()}


@needs_peer
@pytest.mark.parametrize("case", solver_cases([(4, 3, 5)], evaluations=9), ids=lambda c: c.name)
def test_both_solvers_spend_the_same_evaluations(case: Case) -> None:
    """With a tolerance of zero, both spend the whole budget."""
    assert runs_of(case) == {OURS: 9, PEER: 9}


@needs_peer
@pytest.mark.parametrize("solver", [FixedPoint(), Anderson(), Broyden()], ids=repr)
def test_both_solvers_find_the_same_equilibrium(solver: Solver) -> None:
    f, z0 = elementwise_map((4, 3, 5), CPU), torch.zeros(4, 3, 5)
    solver = replace(solver, max_evaluations=80, tol=0)
    theirs = PeerSolver(solver).solve(f, z0)
    torch.testing.assert_close(theirs, solver.solve(f, z0).z, rtol=0, atol=1e-5)


def gradients_of(
    model: str, gradient: GradientEstimator, *, theirs: bool = False, whole: bool = False
) -> dict[str, Tensor]:
    """The gradient of every parameter in a step, with the same masks on both sides.

    The weights of the cell are scaled so that solvers converge, but not at once.
    """
    built, loss = BUILDS[model](SOLVED, gradient, CPU)
    with torch.no_grad():
        for name, parameter in built.deq.named_parameters():
            if model == "MDEQ":
                parameter.mul_(0.3)
            elif name.endswith("original0"):  # the norms of the weight-normed kernels
                parameter.mul_(2)
    if theirs:
        use_peer(built, whole=whole)
    torch.manual_seed(1)
    loss().backward()
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
    """The context of the cell may be computed once or at every evaluation."""
    ours = gradients_of(model, GRADIENTS[gradient])
    theirs = gradients_of(model, GRADIENTS[gradient], theirs=True, whole=whole)
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
    assert runs_of(phantom) == {OURS: 9 + 5, **dict.fromkeys(peers, 9 + 5)}


def test_ours_measures_the_time_outside_f() -> None:
    solver = Broyden(max_evaluations=4, tol=0)
    implicit, _ = step_cases("any", BUILDS["MDEQ"], solver=solver, adjoint=solver)
    seconds = implicit.contenders[OURS](Clock(CPU))().seconds
    assert 0 < seconds["step in f"] < seconds["step"]
    assert seconds["step"] == pytest.approx(seconds["forward"] + seconds["backward"])


@needs_peer
def test_a_gradient_without_counterpart_is_refused() -> None:
    with pytest.raises(TypeError, match="torchdeq has no counterpart of NeumannPhantomGradient"):
        get_layer(SOLVED, NeumannPhantomGradient(5, 0.5))
