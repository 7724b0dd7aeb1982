"""The parts of the DEQ-Transformer, each against its equation."""

import math

import pytest
import torch
from problems import Dispatched

from phantomgrad.models import Memory, TransformerCell
from phantomgrad.models.adaptive import AdaptiveEmbedding, AdaptiveLogSoftmax
from phantomgrad.models.transformer import DistanceEmbedding, RelativeAttention

WIDTH, HEADS, INNER = 8, 2, 12


def randomized(module):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_()
    return module


def cell_of(**settings):
    return randomized(TransformerCell(WIDTH, HEADS, INNER, **settings))


def inputs(memory=3, length=4, batch=2):
    """State, injection, memory."""
    states, injections = torch.randn(batch, memory, WIDTH), torch.randn(batch, memory, 3 * WIDTH)
    z, u = torch.randn(batch, length, WIDTH), torch.randn(batch, length, 3 * WIDTH)
    return z, u, Memory(states, injections)


def context_of(part, u, memory):
    return part.context(u, DistanceEmbedding(WIDTH)(memory.length + u.shape[1], u), memory)


def attention_by_loops(layer, x, u, memory):
    """Attention with explicit loops over sequences, heads, queries and keys."""
    batch, length, _ = x.shape
    m, d = memory.length, WIDTH // HEADS
    projected = torch.cat([memory.states, x], dim=1) @ layer.qkv.weight.T
    projected = projected + torch.cat([memory.injections, u], dim=1)
    q, k, v = (t.unflatten(-1, (HEADS, d)) for t in projected.split(WIDTH, dim=-1))
    frequencies = [10000 ** (-2 * i / WIDTH) for i in range(WIDTH // 2)]
    out = torch.zeros(batch, length, HEADS, d)
    for b in range(batch):
        for h in range(HEADS):
            for i in range(length):
                scores, values = [], []
                for j in range(m + length):
                    p = m + i - j
                    if p < 0 or p >= layer.window:
                        continue
                    waves = [math.sin(p * w) for w in frequencies]
                    waves += [math.cos(p * w) for w in frequencies]
                    r = (layer.position.weight @ torch.tensor(waves)).view(HEADS, d)[h]
                    query = q[b, m + i, h]
                    content = (query + layer.content_bias[h]) @ k[b, j, h]
                    position = (query + layer.position_bias[h]) @ r
                    scores.append((content + position) / math.sqrt(d))
                    values.append(v[b, j, h])
                out[b, i, h] = torch.stack(scores).softmax(0) @ torch.stack(values)
    return out.flatten(2) @ layer.output.weight.T + layer.output.bias


@pytest.mark.parametrize(
    ("memory", "length", "window"),
    [(0, 1, 1), (3, 4, 5), (2, 3, 1), (0, 4, 9), (4, 2, 3), (2, 2, 4)],
)
@torch.no_grad()
def test_attention_is_its_equation(memory, length, window):
    layer = RelativeAttention(WIDTH, HEADS, window, 0.0)
    randomized(layer)
    x, u, remembered = inputs(memory, length)
    ours = layer(x, context_of(layer, u, remembered))
    torch.testing.assert_close(ours, attention_by_loops(layer, x, u, remembered))


def test_distances_are_embedded_in_float32_at_least():
    half = DistanceEmbedding(4)(3, torch.zeros((), dtype=torch.bfloat16))
    table = DistanceEmbedding(4)(3, torch.zeros((), dtype=torch.float32))
    assert torch.equal(half, table.bfloat16())  # angles are computed in float32


def test_the_cell_does_not_modify_its_arguments():
    z, u, memory = inputs()
    cell = cell_of(pre_norm=True)
    context = context_of(cell, u, memory)
    versions = [t._version for t in (z, u, *memory, *context)]
    cell(z, context)
    assert [t._version for t in (z, u, *memory, *context)] == versions


CUTOFFS = pytest.mark.parametrize("cutoffs", [(), (4,), (4, 9), (1, 2, 3)])


def embedding_of(cutoffs):
    return randomized(AdaptiveEmbedding(14, WIDTH, cutoffs, 2))


@CUTOFFS
@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8])
def test_embedding_is_its_equation(cutoffs, dtype):
    embedding, words = embedding_of(cutoffs), torch.arange(14).view(2, 7)[:, :6]
    vectors = embedding(words.to(dtype))
    for w, ours in zip(words.flatten().tolist(), vectors.flatten(0, 1), strict=True):
        i = sum(w >= cutoff for cutoff in cutoffs)
        row = embedding.tables[i][w - (0, *cutoffs)[i]]
        torch.testing.assert_close(ours, math.sqrt(WIDTH) * embedding.projections[i] @ row)
    vectors.square().sum().backward()
    reached = torch.cat([table.grad.any(dim=1) for table in embedding.tables])
    assert reached.nonzero().flatten().tolist() == words.flatten().tolist()


@CUTOFFS
def test_probabilities_of_all_words_sum_to_one(cutoffs):
    embedding = embedding_of(cutoffs)
    softmax = AdaptiveLogSoftmax(embedding)
    randomized(softmax)
    hidden, order = torch.randn(WIDTH).expand(14, -1), torch.randperm(14)
    losses = softmax(hidden, torch.arange(14), embedding)
    torch.testing.assert_close(losses.neg().exp().sum(), torch.ones(()))
    assert torch.equal(softmax(hidden, order, embedding), losses[order])


def test_the_softmax_reads_the_device_once(monkeypatch):
    """The sizes of all clusters together; each reading would wait for an accelerator."""
    embedding, seen, read = embedding_of((3, 8)), [], torch.Tensor.tolist
    softmax, hidden = randomized(AdaptiveLogSoftmax(embedding)), torch.randn(14, WIDTH)
    monkeypatch.setattr(torch.Tensor, "tolist", lambda t: seen.append("tolist") or read(t))
    with Dispatched(lambda operation, _: seen.append(operation.overloadpacket.__name__)):
        softmax(hidden, torch.arange(14), embedding).sum().backward()
    waiting = ("nonzero", "_local_scalar_dense", "bincount", "unique", "tolist")
    assert [name for name in seen if name in waiting] == ["tolist"]
