"""Both sides of the benchmark do the same: evaluations, equilibria, gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from bench.sides import CPU, needs_peer
from torch import Tensor, nn

from phantomgrad import Anderson, Broyden, FixedPoint, Solver
from phantomgrad_suite.bench import peer
from phantomgrad_suite.bench.contest import IMPLICIT, OURS, PEER, PLAIN, Aim, Case
from phantomgrad_suite.bench.graphs import graph_cases
from phantomgrad_suite.bench.images import image_cases
from phantomgrad_suite.bench.maps import elementwise_map
from phantomgrad_suite.bench.plain import plain_broyden
from phantomgrad_suite.bench.solvers import solver_cases
from phantomgrad_suite.bench.steps import StepCase, convolution_cases
from phantomgrad_suite.studies.clock import Clock

pytestmark = [
    pytest.mark.usefixtures("float32"),  # as the benchmark runs
    pytest.mark.filterwarnings("ignore:.*Profiler.*"),
]


@needs_peer
@pytest.mark.parametrize("case", solver_cases(((4, 3, 5),), evaluations=9), ids=lambda c: c.name)
def test_both_sides_spend_the_same_evaluations(case: Case) -> None:
    """All of the budget: the tolerance is out of reach."""
    contenders = case.contenders(CPU, with_peer=True)
    assert {name: run(Clock(CPU)).evaluations for name, run in contenders.items()} == (
        dict.fromkeys(contenders, 9)
    )


@needs_peer
@pytest.mark.parametrize("solver", [FixedPoint(), Anderson(), Broyden()], ids=repr)
def test_both_sides_find_the_same_equilibrium(solver: Solver) -> None:
    """So the peer is called with the map, the start and the budget that are meant."""
    f, z0 = elementwise_map((4, 3, 5), CPU), torch.zeros(4, 3, 5)
    solver = replace(solver, max_evaluations=80, tol=0)
    theirs = peer.solve(solver, f, z0)
    torch.testing.assert_close(theirs, solver.solve(f, z0).z, rtol=0, atol=1e-5)


def test_plain_broyden_takes_the_steps_of_ours() -> None:
    """It is the same method, written as in textbooks."""
    torch.set_default_dtype(torch.float64)
    a, x = torch.randn(3, 6, 6) / 6, torch.randn(3, 6)
    points: dict[str, list[Tensor]] = {OURS: [], PLAIN: []}

    def recorded(name: str) -> Callable[[Tensor], Tensor]:
        def f(z: Tensor) -> Tensor:
            points[name].append(z.clone())
            return torch.tanh((a @ z.unsqueeze(2)).squeeze(2) + x)

        return f

    Broyden(max_evaluations=8, tol=0).solve(recorded(OURS), torch.zeros(3, 6))
    plain_broyden(recorded(PLAIN), torch.zeros(3, 6), evaluations=8)
    assert len(points[PLAIN]) == 8
    torch.testing.assert_close(torch.stack(points[PLAIN]), torch.stack(points[OURS]))


@needs_peer
@pytest.mark.parametrize(
    "case", [*convolution_cases(batch=2, side=6), *graph_cases(graphs=4)], ids=lambda c: c.name
)
def test_both_sides_compute_the_same_gradients(case: StepCase) -> None:
    """A training step of the peer does the work of ours."""
    gradients = []
    for layer in (case._our_layer, case._peer_layer):
        model, _, loss = case.step(CPU, layer)
        loss().backward()
        gradients.append({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
    ours, theirs = gradients
    assert ours.keys() == theirs.keys()
    for name, gradient in ours.items():
        scale = gradient.abs().max().item()
        torch.testing.assert_close(theirs[name], gradient, rtol=0, atol=0.02 * scale)


@needs_peer
def test_a_step_counts_the_evaluations_of_its_cell() -> None:
    """The peer's implicit gradient evaluates f once more, in its backward pass."""
    implicit, phantom = convolution_cases(batch=2, side=4)
    calls = {
        name: contender(Clock(CPU)).evaluations
        for name, contender in implicit.contenders(CPU, with_peer=True).items()
    }
    assert calls == {OURS: 19 + 1, PEER: 19 + 2}
    for contender in phantom.contenders(CPU, with_peer=True).values():
        assert contender(Clock(CPU)).evaluations == 19 + 5


@needs_peer
def test_a_step_of_mdeq_spends_the_same_budget_on_both_sides() -> None:
    """With several states, which the peer gets packed as ours are; UPG also meets our implicit."""
    implicit, phantom = (replace(case, side=8) for case in image_cases((("tiny", 1),)))
    for case, expected in (
        (implicit, {OURS: 23 + 1, PEER: 23 + 2}),
        (phantom, {OURS: 23 + 5, PEER: 23 + 5, IMPLICIT: 23 + 1}),
    ):
        runs = {n: run(Clock(CPU)) for n, run in case.contenders(CPU, with_peer=True).items()}
        assert {n: run.evaluations for n, run in runs.items()} == expected
        assert (Aim("step", 1.4, against=IMPLICIT) in case.aims) is (case is phantom)


def test_the_cells_of_a_step_are_those_that_are_trained() -> None:
    """Each contender has a model of its own, with the same weights."""
    (case, _) = graph_cases(graphs=2)
    first, _, _ = case.step(CPU, case._our_layer)
    second, cell, _ = case.step(CPU, case._our_layer)
    assert isinstance(cell, nn.Module)
    pairs = zip(first.parameters(), second.parameters(), strict=True)
    assert all(torch.equal(a, b) and a is not b for a, b in pairs)
