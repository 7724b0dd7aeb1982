"""The DEQ-Transformer in use: memory, equilibrium, gradients, dropout, copies, misuse."""

from __future__ import annotations

import copy
import io
import math
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils import parametrize
from torch.utils.flop_counter import FlopCounterMode

import transformer_golden as golden
from phantomgrad import (
    BackpropThroughSolver,
    Broyden,
    FixedPoint,
    GradientEstimator,
    ImplicitGradient,
    NeumannPhantomGradient,
    Solver,
    UnrolledPhantomGradient,
)
from phantomgrad.jacobian import jacobian_regularizer
from phantomgrad.models import Memory, TransformerLM
from phantomgrad.nn import VariationalDropout
from problems import exact_gradient as dense_gradient
from problems import newton_equilibrium, relative_error

TIGHT = Broyden(max_evaluations=200, tol=1e-14)
IMPLICIT = ImplicitGradient(solver=TIGHT)
PHANTOM = UnrolledPhantomGradient(3, 0.5)
VOCABULARY = 30
ESTIMATORS = [
    IMPLICIT,
    PHANTOM,
    NeumannPhantomGradient(3, 0.5),
    BackpropThroughSolver(),
]
PRE_NORM = pytest.mark.parametrize("pre_norm", [False, True], ids=["PostLN", "PreLN"])


def small(gradient: GradientEstimator = PHANTOM, solver: Solver = TIGHT, **s: Any) -> TransformerLM:
    """Three clusters; injections that are not small beside the state."""
    sizes = {
        "width": 8,
        "heads": 2,
        "inner": 12,
        "cutoffs": (6, 15),
        "shrinkage": 2,
        "memory_length": 4,
        "dropout": 0.0,
        "embedding_std": 0.5,
        **s,
    }
    return TransformerLM(VOCABULARY, solver, gradient, **sizes)


def words(batch: int = 3, length: int = 5) -> tuple[Tensor, Tensor]:
    """Tokens and targets, of all clusters."""
    both = torch.randint(VOCABULARY, (2, batch, length))
    both[:, 0, 0] = torch.tensor([2, 29])
    both[:, 1, 1] = torch.tensor([10, 7])
    both[:, 2, 2] = torch.tensor([20, 0])
    return both[0], both[1]


def some_memory(batch: int = 3, length: int = 4, width: int = 8) -> Memory:
    return Memory(torch.randn(batch, length, width), torch.randn(batch, length, 3 * width))


# --- Memory and causality --------------------------------------------------------------------


@PRE_NORM
@torch.no_grad()
def test_no_position_sees_a_later_one(pre_norm: bool) -> None:
    """Another token at position 3 changes no loss in front of it, and others behind it."""
    model = small(pre_norm=pre_norm).eval()
    tokens, targets = words()
    memory = some_memory()
    before, _ = model(tokens, targets, memory, unrolled=3)
    tokens[:, 3] = (tokens[:, 3] + 11) % VOCABULARY
    after, _ = model(tokens, targets, memory, unrolled=3)
    assert torch.equal(before[:, :3], after[:, :3])
    assert (before[:, 3:] != after[:, 3:]).all()


@PRE_NORM
def test_gradients_reach_back_only(pre_norm: bool) -> None:
    """Of the loss at one position, by the injections: through the solver's gradient as well."""
    model = small(IMPLICIT, pre_norm=pre_norm)
    kept: list[Tensor] = []
    model.injection.register_forward_hook(lambda _m, _i, u: kept.append(u))
    loss, _ = model(*words())
    (gradient,) = torch.autograd.grad(loss[:, 2].sum(), kept)
    reached = gradient.abs().sum(dim=2) > 1e-12
    assert reached.tolist() == [[True, True, True, False, False]] * 3


@torch.no_grad()
def test_sequences_of_a_batch_do_not_see_each_other() -> None:
    model, memory = small().eval(), some_memory()
    tokens, targets = words()
    alone, _ = model(tokens[:1], targets[:1], Memory(memory[0][:1], memory[1][:1]))
    torch.testing.assert_close(alone, model(tokens, targets, memory)[0][:1])


@PRE_NORM
@torch.no_grad()
def test_equilibrium_of_a_segment_is_that_of_its_parts(pre_norm: bool) -> None:
    """Positions see no later ones, so the first part may be solved for, and remembered, alone."""
    model = golden.model(TIGHT, pre_norm=pre_norm).eval()
    tokens, targets = golden.TOKENS[:, :-1], golden.TOKENS[:, 1:]
    whole, _ = model(tokens, targets)
    losses, memory = [], None
    for part, expected in zip(tokens.split(5, 1), targets.split(5, 1), strict=True):
        loss, memory = model(part, expected, memory, memory_length=10)
        losses.append(loss)
    torch.testing.assert_close(torch.cat(losses, dim=1), whole, rtol=0, atol=1e-9)


@PRE_NORM
@torch.no_grad()
def test_map_of_a_segment_is_that_of_its_parts(pre_norm: bool) -> None:
    """At any state. (Of an unrolled pass new states are remembered, not those it came by.)"""
    model = small(pre_norm=pre_norm, window=6)
    cell, z, u = model.cell, torch.randn(3, 9, 8), torch.randn(3, 9, 24)
    none = Memory(z[:, :0], u[:, :0])
    whole = cell(z, model.context(u, none))
    first = cell(z[:, :4], model.context(u[:, :4], none))
    second = cell(z[:, 4:], model.context(u[:, 4:], Memory(z[:, :4], u[:, :4])))
    torch.testing.assert_close(torch.cat([first, second], dim=1), whole)


@pytest.mark.parametrize("unrolled", [0, 2])
def test_memory_is_the_output_without_its_graph(unrolled: int) -> None:
    model, hidden = small(), []
    model.output_dropout.register_forward_pre_hook(lambda _m, args: hidden.append(args[0]))
    tokens, targets = words()
    _, memory = model(tokens, targets, some_memory(length=3), unrolled=unrolled)
    assert torch.equal(memory.states, hidden[0][:, -4:])
    assert torch.equal(memory.injections, model.inject(tokens)[:, -4:])
    assert not memory.states.requires_grad
    assert not memory.injections.requires_grad


@pytest.mark.parametrize(("kept", "expected"), [(None, 4), (0, 0), (2, 2), (5, 5), (7, 7), (20, 8)])
@torch.no_grad()
def test_memory_keeps_the_last_positions(kept: int | None, expected: int) -> None:
    """The model's own number unless told otherwise; those of the memory before come first."""
    model, before = small(), some_memory(length=3)
    _, memory = model(*words(), before, memory_length=kept)
    assert memory.states.shape == (3, expected, 8)
    assert memory.injections.shape == (3, expected, 24)
    assert memory.length == expected
    old = max(0, expected - 5)
    assert torch.equal(memory.states[:, :old], before.states[:, 3 - old :])
    assert torch.equal(memory.injections[:, :old], before.injections[:, 3 - old :])
    assert memory.states.untyped_storage().nbytes() == memory.states.nbytes


@torch.no_grad()
def test_an_empty_memory_is_none() -> None:
    model, (tokens, targets) = small(), words()
    loss, _ = model(tokens, targets)
    assert torch.equal(loss, model(tokens, targets, some_memory(length=0))[0])
    assert not torch.equal(loss, model(tokens, targets, some_memory(length=1))[0])


# --- Equilibrium and gradient ----------------------------------------------------------------


@PRE_NORM
def test_output_is_an_equilibrium(pre_norm: bool) -> None:
    model, memory = small(pre_norm=pre_norm).eval(), some_memory()
    tokens, targets = words()
    with torch.no_grad():
        _, after = model(tokens, targets, memory, memory_length=5)
        context = model.context(model.inject(tokens), memory)
        torch.testing.assert_close(model.cell(after.states, context), after.states)
    assert model.deq.last_solution.converged.all()


@pytest.mark.parametrize(
    ("gradient", "exact"),
    [
        (IMPLICIT, True),
        (UnrolledPhantomGradient(500, 0.9), True),
        (NeumannPhantomGradient(500, 0.9), True),
        (UnrolledPhantomGradient(3, 0.5), False),
    ],
)
@PRE_NORM
def test_gradient_is_that_of_a_dense_solve(
    pre_norm: bool, gradient: GradientEstimator, exact: bool
) -> None:
    """With a memory, so that what is computed once for a solve has a gradient too."""
    model, memory = small(gradient, pre_norm=pre_norm), some_memory()
    tokens, targets = words(length=3)
    wanted = [*model.deq.parameters(), *model.injection.parameters()]
    context = model.context(model.inject(tokens), memory)

    def f(z: Tensor) -> Tensor:
        return model.cell(z, context)  # type: ignore[no-any-return]

    z = newton_equilibrium(f, model.deq.solver.solve(f, torch.zeros(3, 3, 8)).z, steps=1)
    z.requires_grad_()
    loss = model.softmax(z.flatten(0, 1), targets.flatten(), model.embedding).sum()
    (v,) = torch.autograd.grad(loss, z)
    expected = dense_gradient(f, z.detach(), v, wanted)
    ours = torch.autograd.grad(model(tokens, targets, memory)[0].sum(), wanted)
    error = relative_error(ours, expected)
    assert error < 1e-9 if exact else 1e-4 < error < 1


@pytest.mark.parametrize("gradient", ESTIMATORS, ids=lambda g: type(g).__name__)
@PRE_NORM
def test_every_parameter_learns(pre_norm: bool, gradient: GradientEstimator) -> None:
    model = small(
        gradient,
        FixedPoint(max_evaluations=30, tol=1e-6),
        pre_norm=pre_norm,
        dropout=0.2,
        attention_dropout=0.1,
        output_dropout="features",
    )
    model(*words(), some_memory())[0].mean().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad.any(), name
        assert parameter.grad.isfinite().all(), name


def test_a_segment_without_words_of_a_cluster_leaves_zeros() -> None:
    """Not parameters without gradient, over which a distributed run would stumble."""
    model = small()
    model(torch.zeros(2, 3, dtype=torch.long), torch.ones(2, 3, dtype=torch.int32))[
        0
    ].sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    assert not model.softmax.biases[2].grad.any()


# --- Unrolled pretraining --------------------------------------------------------------------


def test_unrolling_is_a_loop_from_zero_on_the_graph() -> None:
    model, (tokens, targets), memory = small(), words(), some_memory()
    context = model.context(model.inject(tokens), memory)
    z = torch.zeros(3, 5, 8)
    for _ in range(3):
        z = model.cell(z, context)
    expected = model.softmax(z.flatten(0, 1), targets.flatten(), model.embedding).view(3, 5)
    ours, _ = model(tokens, targets, memory, unrolled=3)
    torch.testing.assert_close(ours, expected)
    wanted = list(model.parameters())
    gradients = [torch.autograd.grad(loss.mean(), wanted) for loss in (ours, expected)]
    assert relative_error(*gradients) < 1e-12


def test_unrolling_solves_nothing() -> None:
    model = small()
    model(*words())
    assert model.deq.last_solution is not None
    model(*words(), unrolled=2)
    assert model.deq.last_solution is None


# --- What is computed once -------------------------------------------------------------------


def forward_flops(evaluations: int, memory: Memory) -> int:
    torch.manual_seed(1)
    model = small(solver=FixedPoint(max_evaluations=evaluations, tol=0))
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(*words(), memory)
    return counter.get_total_flops()


def test_an_evaluation_does_not_pay_for_what_is_constant() -> None:
    """Each one more costs the map with a given context: no keys of memory or distances in it."""
    memory, (length, total, d, inner) = some_memory(), (5, 9, 8, 12)
    attention = 2 * d * (3 * d + d + 3 * total + 1)  # projections, two scores and a mean
    expected = 3 * length * (attention + 2 * 2 * d * inner)
    assert forward_flops(3, memory) - forward_flops(2, memory) == expected


@pytest.mark.parametrize("gradient", [IMPLICIT, PHANTOM])
@pytest.mark.parametrize("unrolled", [0, 3])
def test_distances_and_weight_norm_are_computed_once(
    gradient: GradientEstimator, unrolled: int
) -> None:
    model, computed, evaluated = small(gradient), [], []
    attention = model.cell.attention
    attention.position.register_forward_hook(lambda *_: computed.append("positions"))
    attention.qkv.register_forward_hook(lambda *_: evaluated.append(1))
    normed = [m for m in model.modules() if parametrize.is_parametrized(m)]
    assert len(normed) == 5
    for module in normed:
        module.parametrizations.weight[0].register_forward_hook(lambda *_: computed.append("norm"))
    for forward in (1, 2):
        model(*words(), some_memory(), unrolled=unrolled)[0].sum().backward()
        assert computed.count("positions") == forward
        assert computed.count("norm") == 5 * forward
    assert len(evaluated) > 5


# --- Dropout and evaluation ------------------------------------------------------------------

MASKS = {
    "embedding_dropout": (3, 1, 8),
    "output_dropout": (3, 5, 1),
    "distances.dropout": (1, 8),
    "deq.cell.attention.dropout": (2, 3, 5, 9),  # heads first
    "deq.cell.attention_dropout": (3, 1, 8),
    "deq.cell.feed_forward.dropout": (3, 1, 12),
    "deq.cell.feed_forward_dropout": (3, 1, 8),
}


def dropouts(model: TransformerLM) -> dict[str, VariationalDropout]:
    return {n: m for n, m in model.named_modules() if isinstance(m, VariationalDropout)}


@pytest.mark.parametrize("gradient", [IMPLICIT, PHANTOM, NeumannPhantomGradient(3, 0.5)])
@pytest.mark.parametrize("unrolled", [0, 3])
def test_one_mask_serves_solve_and_gradient(gradient: GradientEstimator, unrolled: int) -> None:
    """Of each dropout its own, shared as it should be; others in the next forward."""
    solver = FixedPoint(max_evaluations=20, tol=0)
    model = small(gradient, solver, dropout=0.4, attention_dropout=0.4)
    masks: dict[str, list[Tensor]] = {}
    for name, module in dropouts(model).items():
        seen = masks.setdefault(name, [])
        module.register_forward_hook(lambda m, _i, _o, seen=seen: seen.append(m._mask))
    model(*words(), some_memory(), unrolled=unrolled)[0].sum().backward()
    assert {name: tuple(seen[0].shape) for name, seen in masks.items()} == MASKS
    assert all(mask is seen[0] for seen in masks.values() for mask in seen)
    counts = {name: len(seen) for name, seen in masks.items()}
    assert len(masks["deq.cell.feed_forward.dropout"]) >= 3
    model(*words(), some_memory(), unrolled=unrolled)
    assert all(seen[counts[name]] is not seen[0] for name, seen in masks.items())


def test_output_dropout_takes_tokens_or_features() -> None:
    for kind, shape in (("tokens", (3, 5, 1)), ("features", (3, 1, 8))):
        model = small(dropout=0.3, output_dropout=kind)
        model(*words())
        assert model.output_dropout._mask.shape == shape


def test_rates_are_those_asked_for() -> None:
    rates = {n: m.p for n, m in dropouts(small(dropout=0.3, attention_dropout=0.1)).items()}
    assert rates == {name: 0.1 if name.endswith("attention.dropout") else 0.3 for name in MASKS}


@torch.no_grad()
def test_evaluation_is_deterministic_and_reports_the_solve() -> None:
    model, (tokens, targets) = small(dropout=0.4, attention_dropout=0.2).eval(), words()
    assert torch.equal(model(tokens, targets)[0], model(tokens, targets)[0])
    assert model.deq.last_solution.converged.all()
    assert all(m._mask is None for m in dropouts(model).values())
    model.train()
    assert not torch.equal(model(tokens, targets)[0], model(tokens, targets)[0])


# --- Recomputation ---------------------------------------------------------------------------


@pytest.mark.parametrize("gradient", [*ESTIMATORS, ImplicitGradient(solver=TIGHT, order=2)])
@pytest.mark.parametrize("unrolled", [0, 2])
def test_recomputation_changes_no_gradient(gradient: GradientEstimator, unrolled: int) -> None:
    solver = FixedPoint(max_evaluations=12, tol=0)
    plain = small(gradient, solver, dropout=0.3, pre_norm=True)
    saving = small(gradient, solver, dropout=0.3, pre_norm=True, recompute=True)
    saving.load_state_dict(plain.state_dict())
    (tokens, targets), memory, results = words(), some_memory(), []
    for model in (plain, saving):
        torch.manual_seed(1)
        loss, _ = model(tokens, targets, memory, unrolled=unrolled)
        results.append((loss.detach(), *torch.autograd.grad(loss.sum(), [*model.parameters()])))
    assert relative_error(*results) < 1e-12


@pytest.mark.parametrize("gradient", ESTIMATORS)
def test_recomputation_has_the_masks_of_its_own_pass(gradient: GradientEstimator) -> None:
    """A later pass draws others, or none, before the backward pass of this one."""
    solver = FixedPoint(max_evaluations=12, tol=0)
    plain = small(gradient, solver, dropout=0.3)
    saving = small(gradient, solver, dropout=0.3, recompute=True)
    saving.load_state_dict(plain.state_dict())
    (tokens, targets), results = words(), []
    for model in (plain, saving):
        torch.manual_seed(1)
        first, memory = model(tokens, targets)
        second, _ = model(tokens, targets, memory)
        model.eval()
        loss = (first + second).sum()
        results.append(torch.autograd.grad(loss, [*model.parameters()]))
    assert relative_error(*results) < 1e-12


def kept_in_the_middle(recompute: bool) -> int:
    """How many tensors of the size of the middle the graph of a feed-forward block keeps."""
    block, sizes = small(inner=50, dropout=0.2, recompute=recompute).cell.feed_forward, []

    def pack(tensor: Tensor) -> Tensor:
        sizes.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        block(torch.randn(3, 7, 8))
    return sizes.count(3 * 7 * 50)


def test_recomputation_keeps_nothing_of_the_middle() -> None:
    """Else ReLU and linear map keep the same tensor, and dropout between them none."""
    assert kept_in_the_middle(False) == 2
    assert kept_in_the_middle(True) == 0


@pytest.mark.parametrize("recompute", [False, True])
@PRE_NORM
def test_jacobian_regularisation_has_its_gradient(pre_norm: bool, recompute: bool) -> None:
    """Against the product with the dense Jacobian."""
    model = small(pre_norm=pre_norm, recompute=recompute)
    u = torch.randn(1, 3, 24, requires_grad=True)
    context, z = model.context(u, some_memory(1)), torch.randn(1, 3, 8)

    def f(x: Tensor) -> Tensor:
        return model.cell(x, context)  # type: ignore[no-any-return]

    v = torch.empty_like(z).normal_(generator=torch.Generator().manual_seed(0))
    jacobian = torch.autograd.functional.jacobian(f, z, create_graph=True).view(24, 24)
    expected = (v.flatten() @ jacobian).square().sum() / 24
    ours = jacobian_regularizer(f, z, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(ours, expected)
    wanted = [u, *(p for n, p in model.cell.named_parameters() if n != "feed_forward.linear2.bias")]
    gradients = [
        torch.autograd.grad(x, wanted, retain_graph=True, allow_unused=True, materialize_grads=True)
        for x in (ours, expected)
    ]
    assert relative_error(*gradients) < 1e-10


# --- Instruments -----------------------------------------------------------------------------


def test_a_pass_can_be_played_again() -> None:
    """By the instruments of a run, from its inputs without their graphs."""
    from phantomgrad.callbacks.capture import Listener, Pass

    model, passes = small(dropout=0.3), []
    listener = Listener(lambda layer, given, output: passes.append(Pass(layer, given, output)))
    listener.start(model)
    model(*words(), some_memory())[0].sum().backward()
    listener.stop()
    assert passes[0].reached
    with passes[0].replay() as again:
        torch.testing.assert_close(again.f(again.z), again.z)
        assert again.v.any()


# Dynamo asks every input for its .grad and means to hide what torch says of it.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_a_solve_can_be_compiled() -> None:
    """As one graph, in training mode too: the map draws no mask after its first evaluation."""
    model = small(solver=FixedPoint(max_evaluations=6, tol=0), dropout=0.3, attention_dropout=0.1)
    (tokens, targets), memory, losses = words(), some_memory(), []
    torch.compiler.reset()
    for compiled in (False, True):
        if compiled:
            model.deq.compile_solve(backend="eager", fullgraph=True)
        torch.manual_seed(1)
        losses.append(model(tokens, targets, memory)[0])
    torch.testing.assert_close(*losses)
    assert not any(m.draws for m in model.cell.modules() if isinstance(m, VariationalDropout))


# --- Precision, copies and pickles -----------------------------------------------------------


@pytest.mark.parametrize("recompute", [False, True])
def test_states_stay_in_float32_under_autocast(recompute: bool) -> None:
    """The map computes in bfloat16; solver, memory, loss and gradients do not."""
    model = small(IMPLICIT, Broyden(max_evaluations=8), recompute=recompute).float()
    seen: list[torch.dtype] = []
    model.cell.feed_forward.dropout.register_forward_pre_hook(
        lambda _m, args: seen.append(args[0].dtype)
    )
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, memory = model(*words())
        loss, memory = model(*words(), memory)
        loss.mean().backward()
    assert set(seen) == {torch.bfloat16}
    assert loss.dtype == memory.states.dtype == memory.injections.dtype == torch.float32
    assert all(
        p.grad.dtype == torch.float32 and p.grad.isfinite().all() for p in model.parameters()
    )


def saved_and_loaded(model: TransformerLM) -> TransformerLM:
    stream = io.BytesIO()
    torch.save(model, stream)
    stream.seek(0)
    return torch.load(stream, weights_only=False)  # type: ignore[no-any-return]


def rebuilt(model: TransformerLM) -> TransformerLM:
    twin = small(model.deq.gradient)
    twin.load_state_dict(model.state_dict(), strict=True)
    return twin


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize(
    "twin_of",
    [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)), saved_and_loaded, rebuilt],
    ids=["deepcopy", "pickle", "torch.save", "state_dict"],
)
def test_twins_compute_the_same(twin_of: Any, used: bool) -> None:
    """And own what they compute with; making one draws no random number."""
    model, segment = small(), words()
    if used:
        model(*segment)[0].sum().backward()
        model.zero_grad()
    state = torch.random.get_rng_state()
    twin = twin_of(model)
    assert twin_of is rebuilt or torch.equal(torch.random.get_rng_state(), state)
    pairs = zip(model.named_parameters(), twin.named_parameters(), strict=True)
    for (name, ours), (twin_name, theirs) in pairs:
        assert name == twin_name
        assert torch.equal(ours, theirs)
        assert ours.data_ptr() != theirs.data_ptr()
    for one in (model, twin):
        one(*segment)[0].sum().backward()
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad)


# --- Misuse ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"width": 9, "heads": 3}, "width must be even, .* got 9"),
        ({"heads": 3}, "width must be a multiple of heads = 3, got 8"),
        ({"heads": 0}, "heads must be at least 1, got 0"),
        ({"inner": 0}, "inner must be at least 1, got 0"),
        ({"width": 0}, "width must be at least 2, got 0"),
        ({"cutoffs": (6, 6)}, r"cutoffs must increase strictly .* vocabulary = 30, got \[6, 6\]"),
        ({"cutoffs": (0, 6)}, r"cutoffs must increase strictly .* got \[0, 6\]"),
        ({"cutoffs": (6, 30)}, r"cutoffs must increase strictly .* got \[6, 30\]"),
        ({"cutoffs": (1, 2, 3, 4)}, "shrinkage must leave the last table a width, .* got 2"),
        ({"shrinkage": 0}, "shrinkage must be at least 1, got 0"),
        ({"memory_length": -1}, "memory_length must be at least 0, got -1"),
        ({"window": 0}, "window must be at least 1, got 0"),
        ({"raw_residual": True}, "raw_residual must be False where pre_norm is, got True"),
        ({"dropout": 1.0}, r"dropout must lie in \[0, 1\), got 1.0"),
        ({"attention_dropout": -0.1}, r"attention_dropout must lie in \[0, 1\), got -0.1"),
        ({"output_dropout": "rows"}, "output_dropout must be 'tokens' or 'features', got 'rows'"),
        ({"embedding_std": -1.0}, "embedding_std must not be negative, got -1.0"),
        ({"embedding_std": math.nan}, "embedding_std must not be negative, got nan"),
    ],
)
def test_bad_arguments_are_refused(bad: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small(**bad)


def integers(*shape: int, fill: int = 1) -> Tensor:
    return torch.full(shape, fill)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"tokens": integers(5)}, r"tokens must be integers \(B, L\), got torch.int64 .* \(5,\)"),
        ({"tokens": integers(3, 0)}, r"tokens must be integers \(B, L\), .* \(3, 0\)"),
        ({"tokens": torch.zeros(3, 5)}, "tokens must be integers .* got torch.float"),
        ({"tokens": torch.ones(3, 5).bool()}, "tokens must be integers .* got torch.bool"),
        ({"tokens": integers(3, 5, fill=30)}, r"tokens must lie in \[0, 30\), got 30 to 30"),
        ({"targets": integers(3, 5, fill=-1)}, r"targets must lie in \[0, 30\), got -1 to -1"),
        ({"targets": integers(3, 4)}, r"targets must be \(3, 5\) like tokens, got \(3, 4\)"),
        ({"targets": torch.zeros(3, 5)}, "targets must be integers .* got torch.float"),
        ({"memory": some_memory(2)}, r"memory must hold states \(3, M, 8\) .* got \(2, 4, 8\)"),
        ({"memory": some_memory(width=6)}, r"memory must hold states \(3, M, 8\) .* \(3, 4, 6\)"),
        (
            {"memory": Memory(torch.zeros(3, 4, 8), torch.zeros(3, 3, 24))},
            r"injections \(3, M, 24\), got \(3, 4, 8\) and \(3, 3, 24\)",
        ),
        ({"memory": Memory(torch.zeros(3), torch.zeros(3))}, r"memory must hold .* got \(3,\)"),
        ({"unrolled": -1}, "unrolled must be at least 0, got -1"),
        ({"memory_length": -1}, "memory_length must be at least 0, got -1"),
    ],
)
def test_bad_segments_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small()(**{"tokens": integers(3, 5), "targets": integers(3, 5), **changed})
