"""The DEQ-Transformer against the numbers of the official code."""

import pytest
import torch
import transformer_golden as golden

import phantomgrad as pg
from phantomgrad.models.transformer import DistanceEmbedding, empty_memory

TIGHT = pg.Broyden(max_evaluations=150, tol=1e-14)
VARIANTS = pytest.mark.parametrize("variant", golden.VARIANTS)


def agree(ours, reference):
    """Element by element, in row-major order."""
    expected = torch.tensor(reference).view(ours.shape)
    torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-11)


def close(ours, reference):
    assert ours == pytest.approx(reference, rel=1e-9, abs=1e-11)


def context_of(model, memory=None):
    """The context of segment 0."""
    u = model.inject(golden.segment(0)[0])
    return model.context(u, memory or empty_memory(u, u.dtype))


@pytest.mark.parametrize("length", golden.NUMBERS["positions"])
def test_distances_are_the_official_ones(length):
    table = DistanceEmbedding(golden.WIDTH)(int(length), torch.zeros(()))
    agree(table, golden.NUMBERS["positions"][length])


@torch.no_grad()
def test_embedding_and_injection_are_the_official_ones():
    model, tokens = golden.model(), golden.segment(0)[0]
    agree(model.embedding(tokens), golden.NUMBERS["embedding"])
    agree(model.inject(tokens), golden.NUMBERS["injection"])


@pytest.mark.parametrize("filled", [False, True])
@VARIANTS
@torch.no_grad()
def test_map_is_the_official_one(variant, filled):
    reference = golden.NUMBERS[variant]["maps"]
    model = golden.model(**golden.VARIANTS[variant])
    context = context_of(model, golden.memory() if filled else None)
    seen = []
    model.cell.attention.dropout.register_forward_pre_hook(lambda _m, args: seen.append(args[0]))
    z = golden.state()
    suffix = ", memory" if filled else ""
    agree(model.cell(z, context), reference[f"f(z){suffix}"])
    agree(model.cell.attend(z, context), reference[f"y(z){suffix}"])
    agree(model.cell(torch.zeros_like(z), context), reference[f"f(0){suffix}"])
    agree(seen[0].transpose(0, 1), reference[f"p(z){suffix}"])


@torch.no_grad()
def test_ordinary_residual_is_that_of_the_later_code():
    model, z = golden.model(pre_norm=True, raw_residual=True), golden.state()
    for name, reference in golden.NUMBERS["raw"].items():
        context = context_of(model, golden.memory() if "memory" in name else None)
        agree(model.cell(torch.zeros_like(z) if "0" in name else z, context), reference)


@torch.no_grad()
def test_softmax_is_the_official_one():
    model, reference = golden.model(), golden.NUMBERS["softmax"]
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


def test_softmax_has_the_official_gradient():
    model = golden.model()
    hidden = golden.given(golden.HIDDEN, 12, golden.WIDTH).requires_grad_()
    model.softmax(hidden, golden.WORDS, model.embedding).mean().backward()
    agree(hidden.grad, golden.NUMBERS["softmax"]["gradient"])


@VARIANTS
def test_pretraining_is_the_official_one(variant):
    reference = golden.NUMBERS[variant]
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


def same_gradients(model, reference):
    ours = golden.gradients(model)
    assert ours.keys() == reference.keys()
    for symbol, expected in reference.items():
        assert ours[symbol] == pytest.approx(expected, rel=1e-9, abs=1e-10), symbol


def estimator(name):
    if name == "implicit":
        return pg.ImplicitGradient(solver=TIGHT)
    kind, steps, damping = name.split()
    phantom = pg.NeumannPhantomGradient if kind == "npg" else pg.UnrolledPhantomGradient
    return phantom(int(steps), float(damping))


def same_step(model, h, name, reference):
    """Compare a training step on segment 0 whose solver has found ``h``."""
    tokens, targets = golden.segment(0)
    u = model.inject(tokens)
    u.retain_grad()
    context = model.context(u, empty_memory(u, u.dtype))
    f, h = model.deq.close_over((context,), h)
    z = estimator(name).attach(f, h)
    loss = model.softmax(z.flatten(0, 1), targets.flatten(), model.embedding).mean()
    loss.backward()
    close([loss.item()], [reference["loss"]])
    close(golden.size(u.grad), reference["injection"])
    same_gradients(model, reference["gradients"])


@VARIANTS
@torch.no_grad()
def test_equilibrium_is_the_official_one(variant):
    reference = golden.NUMBERS[variant]["equilibrium"]
    model = golden.model(TIGHT, **golden.VARIANTS[variant]).eval()
    loss, memory = model(*golden.segment(0))
    assert model.deq.last_solution.residual.max() < 1e-13
    agree(memory.states, reference["z"])
    close([loss.mean().item()], [reference["estimates"]["implicit"]["loss"]])


@pytest.mark.parametrize("name", golden.NUMBERS["PostLN"]["equilibrium"]["estimates"])
@VARIANTS
def test_gradients_at_the_equilibrium_are_the_official_ones(variant, name):
    reference = golden.NUMBERS[variant]["equilibrium"]
    model = golden.model(**golden.VARIANTS[variant])
    z = torch.tensor(reference["z"]).view(golden.STATES)
    same_step(model, z, name, reference["estimates"][name])
