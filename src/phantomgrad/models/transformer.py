"""The DEQ-Transformer (Bai et al., 2019), a language model, as the paper trains it.

The file follows the model: memory, attention, the map, the language model; embedding and softmax of
the words are in ``adaptive.py``. A state is a segment of vectors, ``(B, L, d)``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from phantomgrad.checks import (
    check_at_least,
    check_choice,
    check_not_negative,
    check_rate,
    check_tokens,
)
from phantomgrad.deq import DEQ
from phantomgrad.gradients import GradientEstimator
from phantomgrad.models.adaptive import AdaptiveEmbedding, AdaptiveLogSoftmax, check_clusters
from phantomgrad.nn import NormedLinear, VariationalDropout, one_pass, recomputed
from phantomgrad.solvers import Solver


class Memory(NamedTuple):
    """The last positions of the previous segments, off the graph.

    Attributes:
        states: equilibria, ``(B, M, d)``.
        injections: their injections, ``(B, M, 3 d)``.
    """

    states: Tensor
    injections: Tensor

    @property
    def length(self) -> int:
        """M, the number of positions."""
        return self.states.shape[1]

    def extended(self, states: Tensor, injections: Tensor, length: int) -> Memory:
        """Return the last ``length`` positions of this memory and the segment after it."""
        return Memory(
            _last(self.states, states, length), _last(self.injections, injections, length)
        )


def empty_memory(injections: Tensor, dtype: torch.dtype) -> Memory:
    """Return the memory before a first segment with ``injections``, ``(B, L, 3 d)``."""
    batch, _, channels = injections.shape
    empty = torch.empty(batch, 0, channels, dtype=dtype, device=injections.device)
    return Memory(empty[..., : channels // 3], empty)


def check_memory(memory: Memory, batch: int, width: int) -> None:
    """Raise unless ``memory`` belongs to ``batch`` sequences of states of that width."""
    states, injections = (tuple(t.shape) for t in memory)
    length = states[1] if len(states) == 3 else 0
    if states != (batch, length, width) or injections != (batch, length, 3 * width):
        raise ValueError(
            f"memory must hold states ({batch}, M, {width}) and injections "
            f"({batch}, M, {3 * width}), got {states} and {injections}"
        )


def _last(old: Tensor, new: Tensor, length: int) -> Tensor:
    # Cut before joining, so that the result does not hold the storage of dropped positions.
    new = new.detach().to(old.dtype)[:, max(0, new.shape[1] - length) :]
    return torch.cat([old[:, max(0, old.shape[1] + new.shape[1] - length) :], new], dim=1)


class DistanceEmbedding(nn.Module):
    r"""The embedding of distances between words, sines and then cosines.

    .. math:: R_p = (\sin p \omega_0, \dots, \cos p \omega_0, \dots), \qquad
              \omega_i = 10000^{-2 i / d}

    Dropout drops features, with one mask for all distances and sequences.
    """

    def __init__(self, width: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.width = width
        self.dropout = VariationalDropout(dropout, shared_dims=(0,))

    def forward(self, n: int, like: Tensor) -> Tensor:
        """Return vectors ``(n, d)`` of the distances n - 1, ..., 0, in the dtype of ``like``."""
        dtype = torch.promote_types(like.dtype, torch.float32)
        exponents = torch.arange(0, self.width, 2, dtype=dtype, device=like.device) / self.width
        p = torch.arange(n - 1, -1, -1, dtype=dtype, device=like.device)
        angles = p[:, None] * 10000**-exponents
        waves = torch.cat([angles.sin(), angles.cos()], dim=1).to(like.dtype)
        return self.dropout(waves)  # type: ignore[no-any-return]


class Context(NamedTuple):
    """The constants of the map during the solve of one segment.

    Attributes:
        injection: u, ``(B, L, 3 d)``, in channels of queries, keys and values.
        keys, values: of the memory, ``(heads, B, M, d_h)``.
        positions: scaled keys of the distances M + L - 1, ..., 0, after a masked dummy,
            ``(heads, M + L + 1, d_h)``.
        mask: 0 where position j is visible from position M + i, else -inf, ``(L, M + L)``.
    """

    injection: Tensor
    keys: Tensor
    values: Tensor
    positions: Tensor
    mask: Tensor


class RelativeAttention(nn.Module):
    r"""Multi-head attention with the relative positions of Transformer-XL (Dai et al., 2019).

    .. math:: (q, k, v) = W_{qkv} x + u, \qquad r = W_r R, \qquad
              a_{ij} = \frac{(q_i + b_w)^\top k_j + (q_i + b_r)^\top r_{M + i - j}}{\sqrt{d_h}}

    for position i of the segment and j of memory and segment, then a softmax over the j visible
    from i, the weighted mean of v, and :math:`W_o`. Row p of R is the embedding of the distance p.
    The injection u enters the map only here. All matrices are weight-normed.

    A position sees itself and ``window`` - 1 before it; dropout acts on the probabilities.
    """

    def __init__(self, width: int, heads: int, window: int, dropout: float) -> None:
        super().__init__()
        self.window = window
        self.qkv = NormedLinear(width, 3 * width, bias=False)
        self.position = NormedLinear(width, width, bias=False)
        self.output = NormedLinear(width, width)
        self.content_bias = nn.Parameter(torch.zeros(heads, width // heads))
        self.position_bias = nn.Parameter(torch.zeros(heads, width // heads))
        self.dropout = VariationalDropout(dropout)

    def context(self, injection: Tensor, distances: Tensor, memory: Memory) -> Context:
        """Return the constants of a solve, on the graph; the states of ``memory`` are inputs x."""
        width = distances.shape[1]
        weight = self.qkv.weight[width:]  # of keys and values: the memory has no queries
        kv = F.linear(memory.states, weight) + memory.injections[..., width:]
        keys, values = self._heads(kv, 2)
        scaled = self.position(distances) / math.sqrt(self.content_bias.shape[1])  # (M + L, d)
        (positions,) = self._heads(F.pad(scaled, (0, 0, 1, 0)), 1)  # see `_relative`
        mask = visibility(memory.length, self.window, injection)
        return Context(injection, keys, values, positions, mask)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Return what a segment ``(B, L, d)`` reads from itself and its memory, ``(B, L, d)``."""
        q, k, v = self._heads(self.qkv(x) + context.injection, 3)  # (heads, B, L, d_h)
        k = torch.cat([context.keys, k], dim=2)  # (heads, B, M + L, d_h)
        v = torch.cat([context.values, v], dim=2)
        p = self.dropout(self._probabilities(q, k, context))
        mean = torch.matmul(p, v)  # (heads, B, L, d_h)
        return self.output(mean.permute(1, 2, 0, 3).flatten(2))  # type: ignore[no-any-return]

    # Not torch's fused attention: it is slower on the CPU with a bias that requires a gradient (0.9
    # against 0.5 ms for a small model), and has no second derivative for Jacobian regularisation.
    def _probabilities(self, q: Tensor, k: Tensor, context: Context) -> Tensor:
        """Return the attention probabilities, ``(heads, B, L, M + L)``."""
        by_position = self._relative(q + self.position_bias[:, None, None], context.positions)
        scores = torch.baddbmm(
            by_position.flatten(0, 1),
            (q + self.content_bias[:, None, None]).flatten(0, 1),
            k.flatten(0, 1).mT,
            alpha=1 / math.sqrt(q.shape[-1]),
        )
        return (
            scores.add_(context.mask)  # ten times faster on the CPU than masked_fill_
            .softmax(dim=-1)
            .view(*q.shape[:2], *context.mask.shape)
        )

    def _relative(self, q: Tensor, positions: Tensor) -> Tensor:
        """Return the products of queries with the keys of distances, ``(heads, B, L, M + L)``.

        Of the products of query i with all M + L + 1 keys, those from column L - i on are needed.
        In row-major order, without the first L products, they are consecutive: a view. Entries
        that run over into the next row, starting with the dummy key, are masked.
        """
        heads, batch, length, _ = q.shape
        products = torch.bmm(q.flatten(1, 2), positions.mT)  # (heads, B L, M + L + 1)
        rows = products.view(heads, batch, -1)[..., length:]
        return rows.view(heads, batch, length, -1)

    def _heads(self, x: Tensor, parts: int) -> Tensor:
        """Return ``(..., parts d)`` as ``(parts, heads, ..., d_h)``."""
        x = x.view(*x.shape[:-1], parts, *self.content_bias.shape)
        return x.movedim((-3, -2), (0, 1))


def visibility(memory: int, window: int, injection: Tensor) -> Tensor:
    """Return 0 where position j is visible from position M + i, else -inf, ``(L, M + L)``."""
    j = torch.arange(memory + injection.shape[1], device=injection.device)
    distance = j[memory:, None] - j
    hidden = (distance < 0) | (distance >= window)
    mask = torch.zeros(hidden.shape, dtype=injection.dtype, device=injection.device)
    return mask.masked_fill_(hidden, -math.inf)


class FeedForward(nn.Module):
    r"""Two linear maps, :math:`W_2 \, \mathrm{Drop}(\mathrm{ReLU}(W_1 y + b_1)) + b_2`.

    Dropout drops features of a whole sequence. With ``recompute``, the middle, ``(B, L, inner)``,
    is not stored for the backward pass: see :func:`phantomgrad.nn.recomputed`.
    """

    def __init__(self, width: int, inner: int, dropout: float, recompute: bool) -> None:
        super().__init__()
        self.linear1 = NormedLinear(width, inner)
        self.linear2 = NormedLinear(inner, width)
        self.dropout = VariationalDropout(dropout, shared_dims=(1,))
        self.recompute = recompute

    def forward(self, y: Tensor) -> Tensor:
        """Return ``(B, L, d)`` of ``(B, L, d)``."""
        if not self.recompute:
            return self._maps(y)
        return recomputed(self._maps, y)  # type: ignore[no-any-return]

    def _maps(self, y: Tensor) -> Tensor:
        # A mask is not negative, so it can precede the ReLU; then one tensor is stored, not two.
        middle = self.dropout(self.linear1(y)).relu_()  # (B, L, inner)
        return self.linear2(middle)  # type: ignore[no-any-return]


class TransformerCell(nn.Module):
    r"""The map :math:`f(z, u)` of a DEQ-Transformer (Bai et al., 2019).

    With LN after the blocks (PostLN) or before them (``pre_norm``, PreLN),

    .. math:: \mathrm{PostLN:} \quad y = \mathrm{LN}(z + \mathrm{attention}(z, u)), \quad
              f = \mathrm{LN}(y + \mathrm{FFN}(y))

    .. math:: \mathrm{PreLN:} \quad y = z + \mathrm{attention}(\mathrm{LN}(z), u), \quad
              n = \mathrm{LN}(y), \quad f = n + \mathrm{FFN}(n) .

    The second residual of PreLN adds n, as in the official code, which bounds the state at each
    application; an ordinary one adds y (``raw_residual``). LN has no parameters. Dropout after
    each block and in the middle of the second drops features of a whole sequence. ``heads`` and
    ``window`` belong to :class:`RelativeAttention`, ``inner`` to :class:`FeedForward`.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        inner: int,
        *,
        window: int = 1000,
        pre_norm: bool = False,
        raw_residual: bool = False,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        recompute: bool = False,
    ) -> None:
        super().__init__()
        self.pre_norm = pre_norm
        self.raw_residual = raw_residual
        self.attention = RelativeAttention(width, heads, window, attention_dropout)
        self.attention_dropout = VariationalDropout(dropout, shared_dims=(1,))
        self.feed_forward = FeedForward(width, inner, dropout, recompute)
        self.feed_forward_dropout = VariationalDropout(dropout, shared_dims=(1,))

    def context(self, injection: Tensor, distances: Tensor, memory: Memory) -> Context:
        """Return the constants of the map, ``distances`` being M + L - 1, ..., 0, embedded."""
        states = normalized(memory.states) if self.pre_norm else memory.states
        return self.attention.context(injection, distances, memory._replace(states=states))

    def forward(self, z: Tensor, context: Context) -> Tensor:
        """Return the next state, ``(B, L, d)``."""
        y = self.attend(z, context)
        if self.pre_norm:
            n = normalized(y)
            return (y if self.raw_residual else n) + self._feed(n)
        return normalized(y + self._feed(y))

    def attend(self, z: Tensor, context: Context) -> Tensor:
        """Return y, the result of the attention block."""
        x = normalized(z) if self.pre_norm else z
        y = z + self.attention_dropout(self.attention(x, context))
        return y if self.pre_norm else normalized(y)

    def _feed(self, y: Tensor) -> Tensor:
        return self.feed_forward_dropout(self.feed_forward(y))  # type: ignore[no-any-return]


def normalized(x: Tensor) -> Tensor:
    """Return vectors of mean 0 and variance 1, ``(..., d)``."""
    return F.layer_norm(x, x.shape[-1:])


class TransformerLM(nn.Module):
    r"""The deep equilibrium Transformer for text (Bai et al., 2019), segment by segment.

    .. math:: u = W_u \, \mathrm{embedding}(x) + b_u, \quad z^* = f(z^*, u; \mathrm{memory}), \quad
              p = \mathrm{softmax}(z^*) ,

    with ``f`` a :class:`TransformerCell` on a whole segment, solved from zero; embedding and
    softmax are adaptive and share their tables. The defaults are those of WikiText-103.

    Args:
        vocabulary: number of words, by decreasing frequency.
        solver, gradient: of the :class:`phantomgrad.DEQ`.
        width: d, of states and of the embedding; even, and a multiple of ``heads``.
        heads, window: see :class:`RelativeAttention`.
        inner, recompute: see :class:`FeedForward`.
        cutoffs, shrinkage: see :class:`AdaptiveEmbedding`; ``cutoffs=()`` for a small vocabulary.
        memory_length: number of positions kept for the next segment.
        pre_norm, raw_residual: see :class:`TransformerCell`.
        dropout: rate on embedding, distances, both blocks, the middle of the second, and the
            equilibrium. Except for the last, features are dropped for a whole segment.
        attention_dropout: rate on the probabilities of the attention.
        output_dropout: what is dropped from the equilibrium: ``"tokens"``, as in the official
            code, or ``"features"``.
        embedding_std: standard deviation of the initial embeddings, projections and attention
            biases. Weight-normed weights start as in
            :class:`phantomgrad.nn.NormedLinear`; all other biases start at zero.
    """

    def __init__(
        self,
        vocabulary: int,
        solver: Solver,
        gradient: GradientEstimator,
        *,
        width: int = 700,
        heads: int = 10,
        inner: int = 48_000,
        cutoffs: Sequence[int] = (20_000, 40_000, 200_000),
        shrinkage: int = 4,
        memory_length: int = 150,
        pre_norm: bool = False,
        raw_residual: bool = False,
        dropout: float = 0.05,
        attention_dropout: float = 0.0,
        output_dropout: Literal["tokens", "features"] = "tokens",
        window: int = 1000,
        embedding_std: float = 0.01,
        recompute: bool = False,
    ) -> None:
        super().__init__()
        _check_widths(width, heads, inner)
        check_clusters(vocabulary, width, cutoffs, shrinkage)
        check_at_least("memory_length", memory_length, 0)
        check_at_least("window", window, 1)
        check_rate("dropout", dropout)
        check_rate("attention_dropout", attention_dropout)
        check_choice("output_dropout", output_dropout, ("tokens", "features"))
        if raw_residual and not pre_norm:
            raise ValueError("raw_residual must be False without pre_norm, got True")
        self.vocabulary = vocabulary
        self.width = width
        self.memory_length = memory_length
        self.embedding = AdaptiveEmbedding(vocabulary, width, cutoffs, shrinkage)
        self.embedding_dropout = VariationalDropout(dropout, shared_dims=(1,))
        self.injection = nn.Linear(width, 3 * width)
        self.distances = DistanceEmbedding(width, dropout)
        cell = TransformerCell(
            width,
            heads,
            inner,
            window=window,
            pre_norm=pre_norm,
            raw_residual=raw_residual,
            dropout=dropout,
            attention_dropout=attention_dropout,
            recompute=recompute,
        )
        self.deq = DEQ(cell, solver, gradient)
        self.output_dropout = VariationalDropout(dropout, (2 if output_dropout == "tokens" else 1,))
        self.softmax = AdaptiveLogSoftmax(self.embedding)
        self._initialise(embedding_std)

    @property
    def cell(self) -> TransformerCell:
        """The map of the equilibrium layer ``deq``."""
        return self.deq.cell  # type: ignore[return-value]

    def forward(
        self,
        tokens: Tensor,
        targets: Tensor,
        memory: Memory | None = None,
        *,
        unrolled: int = 0,
        memory_length: int | None = None,
        solver: Solver | None = None,
    ) -> tuple[Tensor, Memory]:
        """Return the negative log-likelihood of each target, ``(B, L)`` in nats, and the memory.

        Args:
            tokens, targets: the words of a segment and the word after each, ``(B, L)`` integers.
            memory: returned for the segment before; ``None`` for a first segment.
            unrolled: steps of :meth:`DEQ.unroll` (the pretraining stage); 0 for the equilibrium.
            memory_length: number of positions kept, by default that of the model.
            solver: used in this pass instead of that of the model.
        """
        check_tokens("tokens", tokens, self.vocabulary)
        check_tokens("targets", targets, self.vocabulary, tokens.shape)
        hidden, memory = self._hidden(tokens, memory, unrolled, memory_length, solver)
        loss = self.softmax(hidden.flatten(0, 1), targets.flatten().long(), self.embedding)
        return loss.view(targets.shape), memory

    def _hidden(
        self,
        tokens: Tensor,
        memory: Memory | None,
        unrolled: int,
        memory_length: int | None,
        solver: Solver | None = None,
    ) -> tuple[Tensor, Memory]:
        """Return what the softmax receives at each position, ``(B, L, d)``, and the memory."""
        check_at_least("unrolled", unrolled, 0)
        kept = self.memory_length if memory_length is None else memory_length
        check_at_least("memory_length", kept, 0)
        with one_pass(self):
            x = self.embed(tokens)  # (B, L, d)
            u = self.injection(x)  # (B, L, 3 d)
            z = self.start(x)  # (B, L, d)
            memory = memory or empty_memory(u, z.dtype)
            check_memory(memory, tokens.shape[0], self.width)
            context = self.context(u, memory)
            if unrolled:
                z = self.deq.unroll(z, unrolled, context)
            else:
                z, _ = self.deq(context, z0=z, solver=solver)
            hidden = self.output_dropout(z)
        return hidden, memory.extended(z, u, kept)

    def log_probs(
        self,
        tokens: Tensor,
        memory: Memory | None = None,
        *,
        unrolled: int = 0,
        memory_length: int | None = None,
    ) -> tuple[Tensor, Memory]:
        """Return the log-probabilities of each next word, ``(B, L, vocabulary)``, and the memory.

        The arguments are those of :meth:`forward`, without targets.
        """
        check_tokens("tokens", tokens, self.vocabulary)
        hidden, memory = self._hidden(tokens, memory, unrolled, memory_length)
        flat = self.softmax.log_probs(hidden.flatten(0, 1), self.embedding)
        return flat.view(*tokens.shape, self.vocabulary), memory

    @torch.no_grad()
    def generate(
        self,
        tokens: Tensor,
        length: int,
        memory: Memory | None = None,
        *,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        r"""Return ``length`` words that continue ``tokens``, ``(B, L)``, as ``(B, length)``.

        Words are drawn from :math:`p^{1/T}`, normalised, with the ``temperature`` T; with T = 0
        each is the likeliest. Earlier words are seen through the memory. Dropout follows the mode
        of the module: call ``eval()`` before.
        """
        check_at_least("length", length, 1)
        check_not_negative("temperature", temperature)
        words: list[Tensor] = []
        for _ in range(length):
            logs, memory = self.log_probs(words[-1] if words else tokens, memory)
            logs = logs[:, -1]
            if temperature == 0:
                words.append(logs.argmax(dim=1, keepdim=True))
            else:
                p = (logs / temperature).softmax(dim=1)
                words.append(torch.multinomial(p, 1, generator=generator))
        return torch.cat(words, dim=1)

    def inject(self, tokens: Tensor) -> Tensor:
        """Return the injection, ``(B, L, 3 d)``, of words ``(B, L)``."""
        return self.injection(self.embed(tokens))  # type: ignore[no-any-return]

    def embed(self, tokens: Tensor) -> Tensor:
        """Return what the injection is made of, ``(B, L, d)``, for words ``(B, L)``."""
        return self.embedding_dropout(self.embedding(tokens))  # type: ignore[no-any-return]

    def context(self, u: Tensor, memory: Memory) -> Context:
        """Return the constants of the map for the injection ``u`` after a memory."""
        return self.cell.context(u, self.distances(memory.length + u.shape[1], u), memory)

    def start(self, x: Tensor) -> Tensor:
        """Return the zero state for embedded words ``(B, L, d)``, in the dtype of the model."""
        return self.injection.weight.new_zeros(*x.shape[:2], self.width)

    @torch.no_grad()
    def _initialise(self, std: float) -> None:
        check_not_negative("embedding_std", std)
        attention = self.cell.attention
        for parameter in (
            *self.embedding.parameters(),
            self.injection.weight,
            self.softmax.projection,
            self.softmax.cluster_weight,
            attention.content_bias,
            attention.position_bias,
        ):
            parameter.normal_(0, std)
        self.injection.bias.zero_()


def _check_widths(width: int, heads: int, inner: int) -> None:
    check_at_least("heads", heads, 1)
    check_at_least("inner", inner, 1)
    check_at_least("width", width, 2)
    if width % 2:
        raise ValueError(f"width must be even, for as many sines as cosines, got {width}")
    if width % heads:
        raise ValueError(f"width must be a multiple of heads = {heads}, got {width}")
