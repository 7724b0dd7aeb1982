"""Every refused argument and the message that names it."""

import math
from functools import partial

import pytest
import torch
from problems import CoupledCell, TanhCell
from small_models import convolutional, mdeq, puzzles, reasoner, some_memory, transformer
from torch import nn

import phantomgrad as pg
from phantomgrad.graphs import node_sums
from phantomgrad.models import (
    ImplicitGraphLayer,
    Memory,
    MultilabelNodeClassifier,
    TransformerLM,
    normalized_adjacency,
    project_rows_onto_l1_ball,
)
from phantomgrad.nn import VariationalDropout
from phantomgrad.packing import Packing
from phantomgrad.solvers import LogNormalPoissonDepth

SOLVER, ADJOINT, UPG = pg.Broyden(), pg.ImplicitGradient(), pg.UnrolledPhantomGradient(5, 0.5)
BPTT, FORWARD = pg.BackpropThroughSolver(), pg.ImplicitGradient(preconditioner="forward")
NAN = math.nan
X = torch.zeros(3, 4, dtype=torch.float64)
graph_layer = partial(ImplicitGraphLayer, 3, 4, SOLVER, UPG)
multilabel = partial(MultilabelNodeClassifier, 3, 4, solver=SOLVER, gradient=UPG)
ones = partial(torch.ones, dtype=torch.long)
operator = partial(normalized_adjacency, torch.tensor([[0, 1], [1, 0]]), 3)


def segment(**changed):
    """Call a small transformer on a segment of which something is changed."""
    return transformer()(**{"tokens": ones(3, 5), "targets": ones(3, 5), **changed})


def layer(*inputs, cell=CoupledCell, **keywords):
    return pg.DEQ(cell(), SOLVER, ADJOINT)(*inputs, **keywords)


def tanh_layer():
    return pg.DEQ(TanhCell(), SOLVER, UPG)


def recorded_layer(solver=pg.FixedPoint()):  # noqa: B008 - frozen
    return pg.DEQ(TanhCell(), solver, BPTT)


class Multiple(nn.Module):
    """Returns a second value."""

    def forward(self, z, x):
        return torch.tanh(z + x), x


def packed(*shapes):
    return Packing.of([torch.zeros(shape) for shape in shapes])


class Duck:
    """What looks like a solver, or a gradient."""

    solve = attach = adapt_solver = state = None


SOLVERS = [
    (lambda: pg.FixedPoint(max_evaluations=0), "max_evaluations must be at least 1, got 0"),
    (lambda: pg.FixedPoint(max_evaluations=1.5), "max_evaluations must be an integer, got 1.5"),
    (lambda: pg.FixedPoint(tol=None), "tol must be finite and not negative, got None"),
    (lambda: pg.FixedPoint(tol=NAN), "tol must be finite and not negative, got nan"),
    (lambda: pg.FixedPoint(stop="rel"), "stop must be 'relative' or 'absolute', got 'rel'"),
    (lambda: pg.FixedPoint(norm="l1"), "norm must be 'l2' or 'rms' or 'max', got 'l1'"),
    (lambda: pg.FixedPoint(damping=0.0), r"damping must lie in \(0, 1\], got 0.0"),
    (lambda: pg.Anderson(memory=0), "memory must be at least 1, got 0"),
    (lambda: pg.Anderson(damping=0.0), r"damping must lie in \(0, 1\], got 0.0"),
    *(
        (lambda mu=mu: pg.Anderson(regularization=mu), f"regularization must be finite .* got {mu}")
        for mu in (-1.0, NAN, math.inf)
    ),
    (lambda: pg.Broyden(memory=0), "memory must be at least 1, got 0"),
    (lambda: pg.GMRES(max_evaluations=0), "max_evaluations must be at least 1, got 0"),
    (lambda: pg.GMRES(tol=-1.0), "tol must be finite and not negative, got -1.0"),
    *(
        (lambda setting=setting: pg.Reversible(**setting), next(iter(setting)))
        for setting in (
            *({"damping": damping} for damping in (0.0, 1.0, 2, NAN)),
            *({"backward_tol": tol} for tol in (-1e-3, 1.0)),
        )
    ),
    *((lambda n=n: pg.Steps(n), "n must") for n in (-1, 2.5, True)),
    (lambda: pg.Steps(2, damping=0.0), "damping must"),
    (lambda: pg.Steps(4, depth=8), "depth must return a number of steps when called, got 8"),
    (lambda: LogNormalPoissonDepth(0), "mean must be above 0"),
    (lambda: LogNormalPoissonDepth(4, sigma=-1), "sigma"),
    (
        lambda: SOLVER.solve(torch.tanh, torch.tensor(1.0)),
        r"at least one state, got the shape \(\)",
    ),
    *(
        (
            lambda s=s: s.solve(torch.tanh, ones(2, 3)),
            "z0 must be a floating-point tensor, got torc",
        )
        for s in (SOLVER, pg.Broyden(keep_inverse=True), pg.Reversible())
    ),
]
GRADIENTS = [
    (lambda: pg.ImplicitGradient(on_failure="no"), "on_failure must be 'warn' or .* got 'no'"),
    (lambda: pg.ImplicitGradient(failure_residual=0.0), "failure_residual must be positive, got"),
    (lambda: pg.ImplicitGradient(order=0), "order must be at least 1, got 0"),
    (lambda: pg.ImplicitGradient(at="z"), "at must be 'equilibrium' or 'image', got 'z'"),
    (lambda: pg.ImplicitGradient(at="image", order=2), "order must be 1 with at='image', got 2"),
    (lambda: pg.ImplicitGradient(preconditioner="H"), "preconditioner must be 'forward' or None, "),
    (lambda: pg.ImplicitGradient(preconditioner="forward", order=2), "order must be 1 with a pre"),
    (lambda: pg.UnrolledPhantomGradient(0, 0.5), "steps must be at least 1, got 0"),
    (lambda: pg.NeumannPhantomGradient(0, 0.5), "steps must be at least 1, got 0"),
    (lambda: pg.UnrolledPhantomGradient(5, 1.5), r"damping must lie in \(0, 1\], got 1.5"),
    (lambda: pg.NeumannPhantomGradient(5, 1.5), r"damping must lie in \(0, 1\], got 1.5"),
    (lambda: pg.UnrolledPhantomGradient(5, "adaptve"), "or be .adaptive., got 'adaptve'"),
    (lambda: pg.AdaptiveDamping(every=0), "every must be at least 1, got 0"),
    (lambda: pg.AdaptiveDamping(iterations=0), "iterations must be at least 1, got 0"),
    (lambda: pg.AdaptiveDamping(momentum=1.0), r"momentum must lie in \[0, 1\), got 1.0"),
    (lambda: pg.spectral_radius(torch.sin, X, iterations=0), "iterations must be at least 1, got"),
    (lambda: pg.jacobian_regularizer(torch.sin, X, samples=0), "samples must be at least 1, got"),
    (lambda: pg.agreement([X[0]], [X[:, 0]]), r"shapes of exact, \[\(3,\)\], got \[\(4,\)\]"),
    (
        lambda: pg.estimated_gradient(torch.sin, X, X, pg.BackpropThroughSolver(), [X]),
        "got BackpropTh",
    ),
]
LAYERS = [
    (lambda: layer(), "z0 is needed if the first input is not a tensor"),
    (lambda: layer(ones(2, 4)), "z0 must be a floating-point tensor"),
    (lambda: layer(X, z0=(X, X.float())), r"share their dtype, got \['torch.float32'"),
    (lambda: layer(X[:0], cell=TanhCell), r"at least one state, got the shape \(0, 4\)"),
    (lambda: packed(), "needs at least one tensor, got none"),
    (lambda: Packing.of([torch.tensor(1.0)]), "must have a batch dimension"),
    (lambda: packed((2, 3), (4, 3)), r"must share their batch, got \[2, 4\]"),
    *(
        (lambda other=other: packed((2, 3), (2, 4)).pack(other), r"it maps \[\(3,\), \(4,\)\] to")
        for other in ([X[:2, :3], X[:2, :3]], [X[:2, :2]] * 2)
    ),
    *(
        (lambda other=other: packed((2, 3), (2, 4)).pack(other), r"it maps \[\*, \*\] to [\[(]?\*")
        for other in ([X[:2, :3]], X[:2, :3], (X[:2, :3],) * 2)
    ),
    (lambda: VariationalDropout(1.0), r"p must lie in \[0, 1\), got 1.0"),
    *(
        (lambda dims=dims: VariationalDropout(0.5, shared_dims=dims)(X), r"of shape \(3, 4\)")
        for dims in ((2, 3), (-3,))
    ),
    (lambda: recorded_layer(pg.Reversible())(X, record_at=(2,)), "whose steps autograd records"),
    (lambda: tanh_layer()(X, record_at=3), "record_at must be a list, got 3"),
    (lambda: tanh_layer()(X, record_at=(1.5,)), r"record_at must hold integers, got \[1.5\]"),
    (lambda: tanh_layer()(X, record_at=(0, 3)), r"increasing integers from 1 on, got \(0, 3\)"),
    (lambda: tanh_layer()(X, record_at=(6, 3)), r"increasing integers from 1 on, got \(6, 3\)"),
    (lambda: tanh_layer()(X, record_at=(3, 3)), r"increasing integers from 1 on, got \(3, 3\)"),
]
MODELS = [
    (lambda: convolutional(groups=0), "groups must be at least 1, got 0"),
    (lambda: convolutional(groups=3), "channels must be a multiple of groups = 3, got 4"),
    (lambda: convolutional(kappa=0.0), "kappa must be positive, got 0"),
    (lambda: graph_layer(kappa=0.0), r"kappa must lie in \(0, 1\), got 0.0"),
    *(
        (
            lambda w=w: graph_layer()(X[:, :3], operator(), w),
            r"edge_weight is for edges \(2, E\): a P",
        )
        for w in (2.0, torch.ones(2))
    ),
    *(
        (lambda w=w: operator(edge_weight=w), f"edge_weight must leave .* got degrees from {ends}$")
        for w, ends in (
            (-1.0, "0 to 1"),
            (-3.0, "-2 to 1"),
            (math.inf, "1 to inf"),
        )
    ),
    (lambda: project_rows_onto_l1_ball(X, NAN), "radius must be positive, got nan"),
    (lambda: multilabel(spectral_radius=0.0), "spectral_radius must be a positive number, got 0.0"),
    (lambda: multilabel(spectral_radius=math.inf), "spectral_radius must be a positive number"),
    (lambda: mdeq(groups=3), "groups must be even, got 3"),
    (lambda: mdeq(groups=8.0), "groups must be an integer, got 8.0"),
    (lambda: mdeq(channels=(4, 5, 8)), r"channels must be multiples of groups = 2, got \[4"),
    (lambda: mdeq(channels=8), "channels must be a list, got 8"),
    (lambda: mdeq(channels=(8.0, 8)), r"channels must hold integers, got \[8.0, 8\]"),
    (lambda: mdeq(head_channels=(2, 3)), r"head_channels must be 3 positive .* got \[2, 3"),
    (lambda: mdeq(features=0), "features must be at least 1, got 0"),
    (lambda: mdeq(expansion=0), "expansion must be at least 1, got 0"),
    (lambda: mdeq(stem_strides=(1, 0)), r"stem_strides must be two positive numbers, got \[1, 0\]"),
    (lambda: mdeq(dropout=1.0), r"dropout must lie in \[0, 1\), got 1"),
    (lambda: mdeq(init_std=-0.1), "init_std must be finite and not negative, got -0.1"),
    (lambda: mdeq()(torch.zeros(2, 1, 8, 8)), r"images must be \(B, 3, H, W\), got \(2, 1, 8, 8\)"),
    (lambda: mdeq()(torch.zeros(2, 3, 8, 10)), "multiples of 4, for 3 scales, got 8 x 10"),
    (lambda: mdeq()(torch.zeros(2, 3, 8, 8), unrolled=-1), "unrolled must be at least 0, got -1"),
    (lambda: transformer(width=9, heads=3), "width must be even, .* got 9"),
    (lambda: transformer(heads=3), "width must be a multiple of heads = 3, got 8"),
    (lambda: transformer(inner=0), "inner must be at least 1, got 0"),
    (lambda: transformer(width=0), "width must be at least 2, got 0"),
    (lambda: transformer(cutoffs=(6, 6)), "cutoffs must increase strictly .* vocabulary = 30, got"),
    (lambda: TransformerLM(93, SOLVER, UPG), r"a small vocabulary takes cutoffs=\(\), one"),
    (lambda: node_sums(torch.zeros(3)), r"must be integers \(N,\), got torch\.float64 \(3,\)"),
    (lambda: transformer(cutoffs=(1, 2, 3, 4)), "shrinkage must leave the last table a"),
    (lambda: transformer(cutoffs=6), "cutoffs must be a list, got 6"),
    (lambda: transformer(cutoffs=(6.5, 20)), r"cutoffs must hold integers, got \[6.5, 20\]"),
    (lambda: transformer(shrinkage=0), "shrinkage must be at least 1, got 0"),
    (lambda: transformer(memory_length=-1), "memory_length must be at least 0, got -1"),
    (lambda: transformer(window=0), "window must be at least 1, got 0"),
    (lambda: transformer(raw_residual=True), "raw_residual must be False without pre_norm, got Tr"),
    (lambda: transformer(dropout=1.0), r"dropout must lie in \[0, 1\), got 1.0"),
    (lambda: transformer(attention_dropout=-0.1), r"attention_dropout must lie in \[0, 1\), got"),
    (lambda: transformer(output_dropout="x"), "output_dropout must be 'tokens' or .*, got 'x'"),
    (lambda: transformer(embedding_std=-1.0), "embedding_std must be finite and not negative, got"),
    (lambda: segment(tokens=ones(5)), r"tokens must be integers \(B, L\), got .* \(5,\)"),
    (lambda: segment(tokens=torch.zeros(3, 5)), "tokens must be integers .* got torch.float"),
    (lambda: segment(tokens=30 * ones(3, 5)), r"tokens must lie in \[0, 30\), got 30 to 30"),
    (lambda: segment(targets=-ones(3, 5)), r"targets must lie in \[0, 30\), got -1 to -1"),
    (
        lambda: segment(targets=ones(3, 4)),
        r"targets must have the shape of tokens, \(3, 5\), got \(3, 4\)",
    ),
    (lambda: segment(memory=some_memory(2)), r"memory must hold states \(3, M, 8\) .* \(2, 4, 8\)"),
    (
        lambda: segment(memory=Memory(torch.zeros(3, 4, 8), torch.zeros(3, 3, 24))),
        r"injections \(3, M, 24\), got \(3, 4, 8\) and \(3, 3, 24\)",
    ),
    (lambda: segment(unrolled=-1), "unrolled must be at least 0, got -1"),
    (lambda: segment(memory_length=-1), "memory_length must be at least 0, got -1"),
    (lambda: transformer().generate(ones(1, 2), 0), "length must be at least 1, got 0"),
    (lambda: transformer().generate(ones(1, 2), 1, temperature=-1), "temperature must be finite"),
    (lambda: reasoner(n=0), "n must be at least 1, got 0"),
    (lambda: reasoner(recorded=4), r"recorded must be at most n \+ 1 = 3, got 4"),
    (lambda: reasoner(recorded=0), "recorded must be at least 1, got 0"),
    (lambda: reasoner(hierarchical=True, recorded=1), "must be at least 2 with two networks"),
    (lambda: reasoner(n=None, recorded=1), r"recorded must be None for a single latent.*got 1"),
    (lambda: reasoner(n=None, hierarchical=True), "hierarchical must be False for a single"),
    (lambda: reasoner(mixer="conv"), "mixer must be 'mlp' or 'attention', got 'conv'"),
    (lambda: reasoner(mixer="attention", heads=3), "width must be a multiple of 2 heads = 6"),
    (lambda: reasoner(damping=0), r"damping must lie in \(0, 1\], got 0"),
    (lambda: reasoner(noise=-1), "noise must be finite and not negative, got -1"),
    (lambda: reasoner(multiple=0), "multiple must be at least 1, got 0"),
    (lambda: reasoner(blocks=0), "blocks must be at least 1, got 0"),
    (lambda: reasoner()(puzzles() + 1), r"tokens must lie in \[0, 5\), got . to 5"),
    (lambda: reasoner()(puzzles(2, 7)), r"tokens must be \(B, 6\), got \(2, 7\)"),
    (lambda: reasoner()(puzzles().double()), r"tokens must be integers \(B, L\)"),
    (lambda: reasoner()(puzzles(2), reasoner().start(puzzles(1))), r"8\)\), got \(\(1, 6, 8\)"),
    (
        lambda: reasoner(n=None)(puzzles(2), reasoner().start(puzzles(2))),
        r"shapes \(2, 6, 8\), got \(\(2",
    ),
]
TYPES = [
    (lambda: pg.DEQ(torch.tanh, SOLVER, UPG), "cell must be a torch.nn.Module, got builtin"),
    (lambda: pg.DEQ(TanhCell(), UPG, SOLVER), r"solver must be a phantomgrad\.Solver .*got Unro"),
    (lambda: pg.DEQ(TanhCell(), pg.Broyden, UPG), "solver must be .*, got the class Broyden"),
    (lambda: pg.DEQ(TanhCell(), SOLVER, "upg"), r"be a phantomgrad\.GradientEstimator .*got str"),
    (lambda: pg.DEQ(TanhCell(), Duck(), UPG), r"solver must be a phantomgrad\.Solver .*got Duck"),
    (lambda: pg.DEQ(TanhCell(), SOLVER, Duck()), "gradient must be .*GradientEst.*got Duck"),
    (lambda: layer(X, z0={"z": 1}), "must consist of tensors, got int in it"),
    (lambda: layer(X, z0=(X, None)), "got NoneType in it"),
    (lambda: pg.ImplicitGradient(solver="GMRES"), "solver must be a .*LinearSolver, got 'GMRES'"),
]

CALLS = [
    # The errors of a cell, which may be any, say what it was called with.
    (lambda: layer(X[:, :3], cell=TanhCell), r"z: float64 \(3, 3\); .* width is then that of"),
    (lambda: layer(X, cell=TanhCell, z0=X.float()), "in float64, .* z: float32 .*inputs: .float64"),
    (lambda: layer(X), r"too many values(.|\n)*z: float64 \(3, 4\).*Several states are a tuple"),
    (lambda: layer(X, z0=X.new_zeros(3, 10)), r"z: float64 \(3, 10\).*not their packed solution.z"),
    (lambda: layer(X, cell=Multiple), "got tuple: .*only the next state(.|\n)*only the next z"),
    (lambda: layer(X, x=[X], cell=TanhCell), r"inputs: \(float64 \(3, 4\),\); keywords: {x: \[flo"),
    # What a layer returns is not a tensor; torch says so.
    (lambda: nn.Sequential(tanh_layer(), nn.Linear(4, 2))(X), "must be Tensor, not Equilibrium"),
    (lambda: nn.Sequential(tanh_layer(), tanh_layer())(X), "z0 is needed .*, got Equilibrium"),
    (lambda: pg.spectral_radius(tanh_layer(), X), "got Equilibrium: f is a map .* lambda z: layer"),
    # Parts that do not go together.
    (lambda: tanh_layer()(X, solver=pg.FixedPoint), "must be a phantomgrad.Solver"),
    (
        lambda: pg.DEQ(TanhCell(), pg.GMRES(), UPG),
        r"GMRES\(\) for adjoint equations only\), got GMRES",
    ),
    (lambda: setattr(recorded_layer(), "solver", SOLVER), r"Reversible, Steps\), got Broyden"),
    (lambda: recorded_layer()(X, solver=pg.Anderson()), "needs a solver that autograd can record"),
    (lambda: pg.DEQ(TanhCell(), pg.Anderson(), FORWARD), "needs the solver Broyden, got Anderson"),
    (
        lambda: pg.DEQ(TanhCell(), SOLVER, FORWARD)(X, solver=pg.FixedPoint()),
        "'forward' needs the solver Broyden, got FixedPoint",
    ),
    (lambda: FORWARD.attach(torch.tanh, X), r"for a DEQ: here, pass solution\.inverse"),
    # Settings of the solver, which are not inputs or attributes.
    (
        lambda: layer(X, cell=TanhCell, max_evaluations=3),
        r"solver=dataclasses.replace\(layer.solver",
    ),
]


@pytest.mark.parametrize(("call", "message"), [*SOLVERS, *GRADIENTS, *LAYERS, *MODELS])
def test_bad_values_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(("call", "message"), TYPES)
def test_bad_types_are_refused(call, message):
    with pytest.raises(TypeError, match=message):
        call()


@pytest.mark.parametrize(("call", "message"), CALLS)
def test_wrong_calls_are_explained(call, message):
    with pytest.raises(Exception, match=message):
        call()


def test_a_subclass_may_have_attributes_of_its_own():
    class Layer(pg.DEQ):
        steps = 0

    own = Layer(TanhCell(), SOLVER, UPG)
    own.steps = 3
    assert own(X).z.shape == X.shape


def test_a_refused_part_is_not_installed():
    layer = tanh_layer()
    with pytest.raises(ValueError, match="BackpropThroughSolver needs a solver that autograd"):
        layer.gradient = BPTT
    assert layer.gradient == UPG


@pytest.mark.parametrize(
    "measure", [pg.spectral_radius, pg.jacobian_regularizer, pg.spectral_regularizer]
)
def test_inference_mode_is_refused(measure):
    with torch.inference_mode(), pytest.raises(RuntimeError, match="cannot be taken under torch"):
        measure(torch.tanh, torch.randn(3, 4))


def test_trainable_edge_weights_are_refused():
    """They would receive no gradient."""
    with pytest.raises(ValueError, match="edge_weight must be a constant, got a tensor that requi"):
        normalized_adjacency(torch.tensor([[0], [1]]), 3, edge_weight=nn.Parameter(torch.ones(1)))


def test_a_matrix_is_not_taken_for_edges():
    with pytest.raises(ValueError, match=r"edges must be integers .* got torch.float64 .9, 9."):
        graph_layer()(torch.ones(9, 3), torch.eye(9))


@pytest.mark.parametrize("solver", [pg.FixedPoint(), pg.Anderson(), pg.Broyden()])
@pytest.mark.parametrize(
    ("f", "error", "message"),
    [
        (lambda z: z[:, :1], ValueError, r"it maps \(3, 4\) to \(3, 1\)"),
        (lambda z: z.to("meta"), ValueError, r"z is on cpu, f\(z\) on meta"),
        (lambda z: (z, z), TypeError, "f must return one tensor, got tuple"),
        (lambda z: torch.tanh(z.add_(1)), ValueError, "f must not modify its argument, nor return"),
    ],
)
def test_maps_that_break_the_contract_are_refused(solver, f, error, message):
    with pytest.raises(error, match=message):
        solver.solve(f, X.clone())


@pytest.mark.parametrize("solver", [pg.FixedPoint(), pg.Anderson(), pg.Broyden(), pg.Steps(40)])
def test_a_map_that_returns_the_same_memory_each_time_is_refused_or_solved(solver):
    """Without damping the next state would be this memory, and the residual 0."""
    same = torch.empty_like(X)
    f = lambda z: torch.cos(z, out=same)  # noqa: E731
    if isinstance(solver, pg.FixedPoint | pg.Steps):
        with pytest.raises(ValueError, match="nor return the same memory twice"):
            solver.solve(f, X)
    else:
        z = solver.solve(f, X).z
        torch.testing.assert_close(z, torch.full_like(X, 0.739085), rtol=0, atol=1e-3)
