"""Both sides of the bench do the same work: evaluations, equilibria, gradients."""

from dataclasses import replace

import pytest
import torch

from against_torchdeq import PeerBench, peer
from against_torchdeq.peer import PeerSolver, use_peer
from against_torchdeq.study import SOLVERS, elementwise_map, in_turns, step_of
from phantomgrad import Broyden, ImplicitGradient
from phantomgrad.gradients import UnrolledPhantomGradient
from phantomgrad_suite.jobs.compose import compose_row
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.studies.meters import Clock
from phantomgrad_suite.studies.throughput import TrainingStep

CPU = torch.device("cpu")
needs_peer = pytest.mark.skipif(peer.version() is None, reason=peer.MISSING)
MDEQ, WORDS = "cpu/table1/upg_k5_d0.5_no_dropout", "cpu/table3/wikitext103_postln_upg"
SOLVED = Broyden(max_evaluations=200, tol=1e-8)
GRADIENTS = {"implicit": ImplicitGradient(solver=SOLVED), "UPG": UnrolledPhantomGradient(5, 0.8)}
pytestmark = [
    pytest.mark.usefixtures("own_hydra"),
    pytest.mark.filterwarnings("ignore:.*Profiler.*", "ignore:the adjoint solve failed"),
]


@needs_peer
@pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)
def test_both_solvers_find_the_same_equilibrium_with_the_same_evaluations(solver):
    f, z0, calls = elementwise_map((4, 3, 5), CPU), torch.zeros(4, 3, 5), []

    def counted(z):
        calls.append(z)
        return f(z)

    # Where steps are exactly zero, those of torchdeq's Broyden become nan on some processors.
    budget = 20 if isinstance(solver, Broyden) else 80
    solver = replace(solver, max_evaluations=budget)
    theirs = PeerSolver(solver).solve(counted, z0)
    assert len(calls) == budget
    torch.testing.assert_close(theirs, solver.solve(counted, z0).z, rtol=0, atol=1e-5)
    assert len(calls) == 2 * budget


@pytest.fixture
def small_step(monkeypatch):
    """Training steps of small rows, ours or the peer's."""

    def composed(row):
        config = compose_row(row)
        if row == WORDS:
            config.model.update(width=32, heads=2, inner=64)
        return config

    monkeypatch.setattr("phantomgrad_suite.studies.throughput.compose_row", composed)

    def step(row, solver, gradient, *, theirs):
        torch.manual_seed(3)  # of weights whose equilibria both sides find
        made = TrainingStep(row, 1, 3, Clock(CPU), whole_budgets=False)
        for layer in made.layers:
            layer.solver, layer.gradient, layer.check_map = solver, gradient, False
        if theirs:
            use_peer(made.task)
        return made

    return step


@needs_peer
@pytest.mark.parametrize(("row", "gradient"), [(MDEQ, "UPG"), (WORDS, "implicit")])
def test_both_sides_compute_the_same_gradients(row, gradient, small_step):
    """The weights of the cell are scaled so that solvers converge, but not at once."""
    found = []
    for theirs in (False, True):
        step = small_step(row, SOLVED, GRADIENTS[gradient], theirs=theirs)
        model = step.task.model
        with torch.no_grad():
            for name, parameter in model.deq.named_parameters():
                if row == MDEQ and name.endswith("norm3.weight"):
                    parameter.mul_(0.1)
                elif name.endswith("original0"):  # the norms of the weight-normed kernels
                    parameter.mul_(0.3 if row == MDEQ else 2)
        torch.manual_seed(1)
        step.step()
        found.append({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
    ours, theirs = found
    assert ours.keys() == theirs.keys()
    for name, expected in ours.items():
        error = torch.linalg.vector_norm(theirs[name] - expected)
        assert error <= 1e-4 * torch.linalg.vector_norm(expected) + 1e-12, name


@needs_peer
@pytest.mark.parametrize(
    ("gradient", "ours", "theirs"),
    [
        (ImplicitGradient(solver=Broyden(max_evaluations=4), on_failure="ignore"), 1, 2),
        (UnrolledPhantomGradient(5, 0.8), 5, 5),
    ],
    ids=["implicit", "UPG"],
)
def test_a_step_spends_the_same_budget_on_both_sides(gradient, ours, theirs, small_step):
    """The peer's implicit gradient evaluates f once more, in its backward pass."""
    for side, more in ((False, ours), (True, theirs)):
        step = small_step(MDEQ, Broyden(max_evaluations=9, tol=0), gradient, theirs=side)
        calls = []
        step.task.model.deq.cell.register_forward_hook(lambda *_, c=calls: c.append(None))
        step.step()
        assert len(calls) == 9 + more


@needs_peer
@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("table1/npg_k5_d0.5_no_dropout", "no counterpart of NeumannPhantomGradient"),
        ("table1/implicit_preconditioned5", "no counterpart of .*preconditioner='forward'"),
        ("table3/wikitext103_preln_jr_upg_14", "no counterpart of task.jacobian, in table3"),
        ("reasoning/minimal_j7", r"no counterpart of Steps"),
    ],
)
def test_rows_that_cannot_be_compared_are_refused_before_anything_is_measured(row, message):
    with pytest.raises(UserError, match=message):
        PeerBench(shapes=[(4, 6)], rows={row: 1}).measure(0, CPU)


@needs_peer
@pytest.mark.usefixtures("float32")
def test_both_sides_have_the_weights_of_the_seed():
    first, second, other = (step_of(MDEQ, 1, seed, Clock(CPU)).task for seed in (0, 0, 1))
    weights = [task.state_dict() for task in (first, second, other)]
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())
    assert not all(torch.equal(value, weights[2][name]) for name, value in weights[0].items())


def test_another_side_goes_first_in_each_round():
    """Before the rounds each runs twice: to warm up, and for its memory."""
    made = []

    def contender(name):
        return lambda: made.append(name) or {"step": 2.0 if name == "torchdeq" else 1.0}

    found = in_turns({n: contender(n) for n in ("ours", "torchdeq")}, Clock(CPU), 2)
    ours, theirs = "ours", "torchdeq"
    assert made == [ours, ours, theirs, theirs, ours, theirs, theirs, ours]
    assert found["times_less"]["step"] == 2


@needs_peer
@pytest.mark.usefixtures("float32")
def test_what_is_recorded(small_step):
    """Both sides spend the budget of every solve; what our solvers take themselves is left out."""
    study = PeerBench(shapes=[(4, 6)], rows={MDEQ: 1}, solve_repeats=2, step_repeats=1)
    numbers = study.measure(0, CPU).numbers
    assert [each["solver"] for each in numbers["solves"]] == ["FixedPoint", "Anderson", "Broyden"]
    (step,) = numbers["steps"]
    for case in (*numbers["solves"], step):
        assert case["times_less"].keys() == {"peak_bytes", *case["ours"]["seconds"]}
        assert min(case["ours"]["peak_bytes"], case["torchdeq"]["peak_bytes"]) > 0
    assert len(numbers["solves"][0]["ours"]["seconds"]["total"]["samples"]) == 2
    seconds = {q: found["median"] for q, found in step["ours"]["seconds"].items()}
    assert 0 < seconds["free"] < seconds["step"]


def test_without_the_peer_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(peer, "version", lambda: None)
    with pytest.raises(UserError, match=r"pip install -e '.\[bench\]' in the checkout"):
        PeerBench(shapes=[], rows={}).measure(0, CPU)
