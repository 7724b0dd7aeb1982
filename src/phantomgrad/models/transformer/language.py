"""The DEQ-Transformer as a language model."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from phantomgrad.checks import check_at_least, check_deviation
from phantomgrad.deq import DEQ
from phantomgrad.gradients import GradientEstimator
from phantomgrad.models.transformer.attention import Context
from phantomgrad.models.transformer.cell import TransformerCell
from phantomgrad.models.transformer.checks import (
    check_attention,
    check_clusters,
    check_dropout,
    check_widths,
    check_words,
)
from phantomgrad.models.transformer.embedding import AdaptiveEmbedding, DistanceEmbedding
from phantomgrad.models.transformer.memory import Memory, check_memory, empty_memory
from phantomgrad.models.transformer.softmax import AdaptiveLogSoftmax
from phantomgrad.nn import VariationalDropout, resample_dropout, shared_parametrizations
from phantomgrad.solvers import Solver


class TransformerLM(nn.Module):
    r"""The deep equilibrium Transformer for text (Bai et al., 2019), segment by segment.

    .. math:: u = W_u \, \mathrm{embedding}(x) + b_u, \quad z^* = f(z^*, u; \mathrm{memory}), \quad
              p = \mathrm{softmax}(z^*) ,

    with ``f`` a :class:`TransformerCell` on a whole segment, found from zero; embedding and softmax
    are adaptive and share their tables. Sizes are in ``configs/model``.

    Args:
        vocabulary: number of words, by decreasing frequency.
        solver: finds the equilibrium.
        gradient: differentiates it.
        width: d, of states and of the embedding; even, and a multiple of ``heads``.
        heads: of the attention.
        inner: width of the feed-forward block in its middle.
        cutoffs: first words of the second, third, ... cluster of the vocabulary.
        shrinkage: by how much the table of a cluster is narrower than that of the one before.
        memory_length: how many positions are kept for the next segment.
        pre_norm: PreLN instead of PostLN, see :class:`TransformerCell`.
        raw_residual: see :class:`TransformerCell`.
        dropout: rate on embedding, distances, both blocks, the middle of the second, and the
            equilibrium; but for the last, a mask takes features, all along the segment.
        attention_dropout: rate on the probabilities of the attention.
        output_dropout: takes ``"tokens"``, as in the official code, or ``"features"``.
        window: a position sees itself and window - 1 positions before it.
        embedding_std: deviation of the normal distribution from which all is drawn that is neither
            weight-normed nor a bias of a linear map; these biases start at zero.
        recompute: see :class:`FeedForward`.

    Raises:
        ValueError: a size is too small, ``width`` is odd or no multiple of ``heads``, ``cutoffs``
            do not increase strictly inside the vocabulary or leave the last table no width, a rate
            or ``embedding_std`` is out of range, ``output_dropout`` is neither of the two, or
            ``raw_residual`` is asked for without ``pre_norm``.
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
        check_widths(width, heads, inner)
        check_clusters(vocabulary, width, cutoffs, shrinkage)
        check_attention(memory_length, window, pre_norm, raw_residual)
        check_dropout(dropout, attention_dropout, output_dropout)
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
        """The map whose equilibrium the layer ``deq`` finds."""
        return self.deq.cell  # type: ignore[return-value]

    @property
    def tied_projections(self) -> int:
        """How many parameters project in both uses; the official code counts them twice."""
        return sum(p.numel() for p in itertools.islice(self.embedding.projections, 1, None))

    def forward(
        self,
        tokens: Tensor,
        targets: Tensor,
        memory: Memory | None = None,
        *,
        unrolled: int = 0,
        memory_length: int | None = None,
    ) -> tuple[Tensor, Memory]:
        """Return the negative log-likelihood of each target, ``(B, L)`` in nats, and the memory.

        Args:
            tokens: the words of a segment, ``(B, L)`` integers.
            targets: the word that follows each, ``(B, L)`` integers.
            memory: what the segment before has left; none in front of a first segment.
            unrolled: how many applications of the cell take the place of solver and gradient
                estimator, all of them on the graph (the pretraining stage); 0 for the equilibrium.
            memory_length: how many positions are kept, instead of the model's own number.

        Raises:
            ValueError: ``tokens`` or ``targets`` are no integers ``(B, L)`` inside the vocabulary,
                ``memory`` is of another batch or width, or a number is negative.
        """
        check_at_least("unrolled", unrolled, 0)
        kept = self.memory_length if memory_length is None else memory_length
        check_at_least("memory_length", kept, 0)
        check_words("tokens", tokens, self.vocabulary)
        check_words("targets", targets, self.vocabulary, tokens.shape)
        resample_dropout(self)
        u = self.inject(tokens)  # (B, L, 3 d)
        z = self.start(u)  # (B, L, d)
        memory = memory or empty_memory(u, z.dtype)
        check_memory(memory, tokens.shape[0], self.width)
        with shared_parametrizations(self.cell):
            context = self.context(u, memory)
            z = self._unroll(z, context, unrolled) if unrolled else self.deq(context, z0=z)[0]
        hidden = self.output_dropout(z).flatten(0, 1)
        loss = self.softmax(hidden, targets.flatten().long(), self.embedding)
        return loss.view(targets.shape), memory.extended(z, u, kept)

    def inject(self, tokens: Tensor) -> Tensor:
        """Return the injection, ``(B, L, 3 d)``, of words ``(B, L)``."""
        return self.injection(self.embedding_dropout(self.embedding(tokens)))  # type: ignore[no-any-return]

    def context(self, u: Tensor, memory: Memory) -> Context:
        """Return what the map needs beside a state, for the injection ``u`` behind a memory."""
        return self.cell.context(u, self.distances(memory.length + u.shape[1], u), memory)

    def start(self, u: Tensor) -> Tensor:
        """Return the zero state that goes with an injection ``u``, in the dtype of the model."""
        return self.injection.weight.new_zeros(*u.shape[:2], self.width)

    def _unroll(self, z: Tensor, context: Context, steps: int) -> Tensor:
        self.deq.last_solution = None  # nothing was solved, so there is nothing to log
        for _ in range(steps):
            z = self.cell(z, context)
        return z

    @torch.no_grad()
    def _initialise(self, std: float) -> None:
        check_deviation("embedding_std", std)
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
