"""The DEQ-Transformer against the numbers of the official code, and its sizes."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

import transformer_golden as golden
from phantomgrad import (
    Broyden,
    GradientEstimator,
    ImplicitGradient,
    NeumannPhantomGradient,
    UnrolledPhantomGradient,
)
from phantomgrad.models import Memory, TransformerLM
from phantomgrad.models.transformer.attention import Context
from phantomgrad.models.transformer.embedding import DistanceEmbedding
from phantomgrad.models.transformer.memory import empty_memory
from problems import dense_jacobian
from training import composed

TIGHT = Broyden(max_evaluations=150, tol=1e-14)
VARIANTS = pytest.mark.parametrize("variant", golden.VARIANTS)


def agree(ours: Tensor, reference: list[float]) -> None:
    """Element by element, in row-major order."""
    expected = torch.tensor(reference).view(ours.shape)
    torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-11)


def close(ours: list[float], reference: list[float]) -> None:
    assert ours == pytest.approx(reference, rel=1e-9, abs=1e-11)


def context_of(model: TransformerLM, memory: Memory | None = None) -> Context:
    """That of segment 0."""
    u = model.inject(golden.segment(0)[0])
    return model.context(u, memory or empty_memory(u, u.dtype))


# --- Forward ---------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [5, 11])
def test_distances_are_the_official_ones(length: int) -> None:
    table = DistanceEmbedding(golden.WIDTH)(length, torch.zeros(()))
    agree(table, golden.numbers()["positions"][str(length)])


@torch.no_grad()
def test_embedding_and_injection_are_the_official_ones() -> None:
    model, tokens = golden.model(), golden.segment(0)[0]
    agree(model.embedding(tokens), golden.numbers()["embedding"])
    agree(model.inject(tokens), golden.numbers()["injection"])


@pytest.mark.parametrize("filled", [False, True])
@VARIANTS
@torch.no_grad()
def test_map_is_the_official_one(variant: str, filled: bool) -> None:
    """And its first half, and the probabilities of the attention."""
    reference = golden.numbers()[variant]["maps"]
    model = golden.model(**golden.VARIANTS[variant])
    context = context_of(model, golden.memory() if filled else None)
    seen: list[Tensor] = []
    model.cell.attention.dropout.register_forward_pre_hook(lambda _m, args: seen.append(args[0]))
    z = golden.given(golden.STATE, golden.BATCH, golden.LENGTH, golden.WIDTH)
    suffix = ", memory" if filled else ""
    agree(model.cell(z, context), reference[f"f(z){suffix}"])
    agree(model.cell.attend(z, context), reference[f"y(z){suffix}"])
    agree(model.cell(torch.zeros_like(z), context), reference[f"f(0){suffix}"])
    agree(seen[0].transpose(0, 1), reference[f"p(z){suffix}"])


@pytest.mark.parametrize("name", ["f(z)", "f(0)", "f(z), memory"])
@torch.no_grad()
def test_ordinary_residual_is_that_of_the_later_code(name: str) -> None:
    model = golden.model(**golden.RAW)
    z = golden.given(golden.STATE, golden.BATCH, golden.LENGTH, golden.WIDTH)
    context = context_of(model, golden.memory() if "memory" in name else None)
    ours = model.cell(torch.zeros_like(z) if "0" in name else z, context)
    agree(ours, golden.numbers()["raw"][name])


@torch.no_grad()
def test_softmax_is_the_official_one() -> None:
    model, reference = golden.model(), golden.numbers()["softmax"]
    hidden = golden.given(golden.HIDDEN, 12, golden.WIDTH)
    loss = model.softmax(hidden, golden.WORDS, model.embedding)
    agree(loss, reference["rows"])
    close([loss.mean().item()], [reference["mean"]])
    every = model.softmax(hidden[:1].expand(50, -1), torch.arange(50), model.embedding)
    agree(every, reference["words"])
    head = model.softmax.head(hidden, model.embedding).log_softmax(dim=1)
    columns = [*range(12), *[14] * 8, *[13] * 14, *[12] * 16]
    heads = torch.stack([-head[row, columns[w]] for row, w in enumerate(golden.WORDS.tolist())])
    agree(heads, reference["heads"])
    agree(loss - heads, reference["tails"])


def test_softmax_has_the_official_gradient() -> None:
    model = golden.model()
    hidden = golden.given(golden.HIDDEN, 12, golden.WIDTH).requires_grad_()
    model.softmax(hidden, golden.WORDS, model.embedding).mean().backward()
    agree(hidden.grad, golden.numbers()["softmax"]["gradient"])


@VARIANTS
@torch.no_grad()
def test_iterates_are_the_official_ones(variant: str) -> None:
    reference = golden.numbers()[variant]
    model = golden.model(**golden.VARIANTS[variant])
    context = context_of(model)
    z, residuals = torch.zeros(golden.BATCH, golden.LENGTH, golden.WIDTH), []
    for statistics in [*reference["iterates"], None]:
        fz = model.cell(z, context)
        residuals.append(torch.linalg.vector_norm(fz - z).item())
        if statistics is not None:
            close(golden.statistics(fz), statistics)
            z = fz
    close(residuals, reference["residuals"])


# --- Unrolled pretraining --------------------------------------------------------------------


@VARIANTS
def test_pretraining_is_the_official_one(variant: str) -> None:
    """Two applications, three segments, and the memory between them."""
    reference = golden.numbers()[variant]
    model, memory = golden.model(**golden.VARIANTS[variant]), None
    for s, expected in enumerate(reference["segments"]):
        model.zero_grad()
        loss, memory = model(*golden.segment(s), memory, unrolled=2)
        close([loss.mean().item()], [expected["loss"]])
        assert memory.states.shape == (golden.BATCH, expected["length"], golden.WIDTH)
        close(golden.statistics(memory.states), expected["states"])
        close(golden.statistics(memory.injections), expected["injections"])
        loss.mean().backward()
        if s < len(reference.get("unrolled", [])):
            same_gradients(model, reference["unrolled"][s])


def same_gradients(model: TransformerLM, reference: dict[str, list[float]]) -> None:
    ours = golden.gradients(model)
    assert ours.keys() == reference.keys()
    for symbol, expected in reference.items():
        assert ours[symbol] == pytest.approx(expected, rel=1e-9, abs=1e-10), symbol


# --- Estimators ------------------------------------------------------------------------------


def estimator(name: str) -> GradientEstimator:
    kind, *numbers = name.split()
    if kind == "implicit":
        return ImplicitGradient(solver=TIGHT)
    steps, damping = int(numbers[0]), float(numbers[1])
    if kind == "npg":
        return NeumannPhantomGradient(steps, damping)
    return UnrolledPhantomGradient(steps, damping)


def trained(model: TransformerLM, h: Tensor, gradient: GradientEstimator) -> dict[str, Any]:
    """Loss and gradients of a training step on segment 0 whose solver has found ``h``."""
    model.zero_grad()
    tokens, targets = golden.segment(0)
    u = model.inject(tokens)
    u.retain_grad()
    context = model.context(u, empty_memory(u, u.dtype))
    f, h, _ = model.deq.close_over((context,), h)
    z = gradient.attach(f, h)
    loss = model.softmax(z.flatten(0, 1), targets.flatten(), model.embedding).mean()
    loss.backward()
    return {"loss": loss.item(), "injection": golden.size(u.grad)}


def same_step(model: TransformerLM, ours: dict[str, Any], reference: dict[str, Any]) -> None:
    close([ours["loss"]], [reference["loss"]])
    close(ours["injection"], reference["injection"])
    same_gradients(model, reference["gradients"])


@pytest.mark.parametrize("name", golden.numbers()["PostLN"]["estimates"])
def test_phantom_gradients_from_a_state_are_the_official_ones(name: str) -> None:
    model = golden.model()
    with torch.no_grad():
        h, context = torch.zeros(golden.BATCH, golden.LENGTH, golden.WIDTH), context_of(model)
        for _ in range(4):
            h = model.cell(h, context)
    reference = golden.numbers()["PostLN"]["estimates"][name]
    same_step(model, trained(model, h, estimator(name)), reference)


@VARIANTS
@torch.no_grad()
def test_equilibrium_is_the_official_one(variant: str) -> None:
    reference = golden.numbers()[variant]["equilibrium"]
    model = golden.model(TIGHT, **golden.VARIANTS[variant]).eval()
    loss, memory = model(*golden.segment(0))
    assert model.deq.last_solution.residual.max() < 1e-13
    agree(memory.states, reference["z"])
    close([loss.mean().item()], [reference["estimates"]["implicit"]["loss"]])


@VARIANTS
def test_spectral_radius_is_the_official_one(variant: str) -> None:
    reference = golden.numbers()[variant]["equilibrium"]
    model = golden.model(**golden.VARIANTS[variant])
    context = context_of(model)
    z = torch.tensor(reference["z"]).view(golden.BATCH, golden.LENGTH, golden.WIDTH)
    eigenvalues = torch.linalg.eigvals(dense_jacobian(lambda x: model.cell(x, context), z))
    close([eigenvalues.abs().max().item()], [reference["radius"]])


@pytest.mark.parametrize("name", golden.numbers()["PostLN"]["equilibrium"]["estimates"])
@VARIANTS
def test_gradients_at_the_equilibrium_are_the_official_ones(variant: str, name: str) -> None:
    reference = golden.numbers()[variant]["equilibrium"]
    model = golden.model(**golden.VARIANTS[variant])
    z = torch.tensor(reference["z"]).view(golden.BATCH, golden.LENGTH, golden.WIDTH)
    same_step(model, trained(model, z, estimator(name)), reference["estimates"][name])


@VARIANTS
def test_a_training_step_has_the_exact_gradient(variant: str) -> None:
    """The whole of it: solver, estimator and what is shared between them."""
    reference = golden.numbers()[variant]["equilibrium"]["estimates"]["implicit"]
    model = golden.model(TIGHT, ImplicitGradient(solver=TIGHT), **golden.VARIANTS[variant])
    loss, _ = model(*golden.segment(0))
    loss.mean().backward()
    same_gradients(model, reference["gradients"])


# --- Sizes -----------------------------------------------------------------------------------

VOCABULARY = 267_735  # of WikiText-103
# Weight norm counts directions and gains.
PARAMETERS = {
    "embedding.tables": 14_000_000 + 3_500_000 + 6_880_000 + 677_350,
    "embedding.projections": 490_000 + 122_500 + 30_100 + 7_000,
    "injection": 1_470_000 + 2_100,
    "deq.cell.attention": 2_455_600,
    "deq.cell.feed_forward": 67_297_400,
    "softmax.projection": 490_000,
    "softmax.cluster": 2_100 + 3,
    "softmax.biases": VOCABULARY,
}
QKV, ROW = 2.94e6, 0.98e6  # operations of two projections, per token


def full_size(**settings: Any) -> TransformerLM:
    """The model of the paper, without memory for its parameters."""
    with torch.device("meta"):
        return TransformerLM(VOCABULARY, golden.STAY, golden.UPG, **settings)


@VARIANTS
def test_parameters_are_the_official_ones(variant: str) -> None:
    """All that are counted, 98M: projections of both uses twice, tables once."""
    model = full_size(**golden.VARIANTS[variant])
    for prefix, count in PARAMETERS.items():
        found = [p.numel() for name, p in model.named_parameters() if name.startswith(prefix)]
        assert sum(found) == count, prefix
    total = sum(p.numel() for p in model.parameters())
    assert total == sum(PARAMETERS.values()) == 97_691_888
    assert model.tied_projections == 159_600
    assert total + model.tied_projections == 97_851_488


@pytest.mark.parametrize(
    ("batch", "memory", "official"),
    [
        (1, 0, 139.93e6),
        (1, 150, 144.48e6),
        (1, 300, 149.03e6),
        (1, 480, 154.49e6),
        (2, 150, 143.5e6),
    ],
)
def test_operations_are_the_official_ones_but_for_what_is_constant(
    batch: int, memory: int, official: float
) -> None:
    """Of one map, per token of a segment of 150. The official code projects distances and memory at
    each evaluation; here that is done once, and a score is taken of one distance more."""
    model, tokens = full_size(), 150 * batch
    with torch.device("meta"):
        u, z = torch.empty(batch, 150, 2100), torch.empty(batch, 150, 700)
        remembered = Memory(torch.empty(batch, memory, 700), torch.empty(batch, memory, 2100))
        with FlopCounterMode(display=False) as once:
            context = model.context(u, remembered)
        with FlopCounterMode(display=False) as each:
            model.cell(z, context)
    distances = ROW * (memory + 150) / tokens
    assert each.get_total_flops() / tokens == pytest.approx(
        official - QKV * memory / 150 - distances + 1400, rel=1e-12
    )
    # Of the memory no queries are wanted.
    assert once.get_total_flops() / tokens == pytest.approx(
        2 / 3 * QKV * memory / 150 + distances, rel=1e-12
    )


@pytest.mark.parametrize(("size", "count"), [("postln", 97_691_888), ("preln", 97_691_888)])
def test_configurations_have_these_sizes(size: str, count: int) -> None:
    """And the memory and rates of the official scripts."""
    from hydra.utils import instantiate

    config = composed([f"model=transformer_{size}", "gradient=upg"]).model
    with torch.device("meta"):
        model = instantiate(config, vocabulary=VOCABULARY)
    assert sum(p.numel() for p in model.parameters()) == count
    assert model.cell.pre_norm == (size == "preln")
    protocol = (model.memory_length, model.embedding_dropout.p, model.cell.attention.dropout.p)
    assert protocol == {"postln": (150, 0.05, 0.0), "preln": (300, 0.06, 0.01)}[size]


def test_small_configuration_trains() -> None:
    """Of clusters that a row overrides; it starts with even odds in head and tail."""
    from hydra.utils import instantiate

    names = ["model=transformer_small", "gradient=upg", "solver=fixed_point", "model.cutoffs=[20]"]
    model = instantiate(composed(names).model, vocabulary=50)
    tokens, targets = golden.segment(0)
    loss, _ = model(tokens, targets)
    loss.mean().backward()
    expected = math.log(21) + (targets >= 20) * math.log(30)
    torch.testing.assert_close(loss, expected, rtol=0.05, atol=0)
    assert all(p.grad is not None for p in model.parameters())


def test_start_is_the_official_one() -> None:
    """As it acts: normed matrices keep torch's own, everything else is N(0, 0.01^2) or zero."""
    model = TransformerLM(4000, golden.STAY, golden.UPG, width=100, inner=500, cutoffs=(1000, 2000))
    for name, parameter in model.named_parameters():
        if "bias" in name and not name.endswith(("content_bias", "position_bias")):
            assert not parameter.any(), name
        elif "original1" in name:
            bound = parameter.shape[1] ** -0.5
            assert 0.95 * bound < parameter.abs().max() <= bound, name
            assert parameter.std().item() == pytest.approx(bound / 3**0.5, rel=0.03), name
        elif "original0" in name:
            assert parameter.mean().item() == pytest.approx(3**-0.5, rel=0.03), name
        else:
            spread = 0.4 if parameter.numel() < 1000 else 0.05
            assert parameter.std().item() == pytest.approx(0.01, rel=spread), name
