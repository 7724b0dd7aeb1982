"""The DEQ-Transformer as a language model."""

import itertools
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from phantomgrad.checks import (
    check_at_least,
    check_choice,
    check_integers,
    check_not_negative,
    check_rate,
    check_tokens,
)
from phantomgrad.deq import DEQ
from phantomgrad.gradients import GradientEstimator
from phantomgrad.models.transformer.attention import Context, Memory, check_memory, empty_memory
from phantomgrad.models.transformer.cell import TransformerCell
from phantomgrad.models.transformer.embedding import (
    AdaptiveEmbedding,
    AdaptiveLogSoftmax,
    DistanceEmbedding,
)
from phantomgrad.nn import VariationalDropout, shared_masks, shared_parametrizations
from phantomgrad.solvers import Solver


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
        _check_clusters(vocabulary, width, cutoffs, shrinkage)
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
    ) -> tuple[Tensor, Memory]:
        """Return the negative log-likelihood of each target, ``(B, L)`` in nats, and the memory.

        Args:
            tokens, targets: the words of a segment and the word after each, ``(B, L)`` integers.
            memory: returned for the segment before; ``None`` for a first segment.
            unrolled: steps of :meth:`DEQ.unroll` (the pretraining stage); 0 for the equilibrium.
            memory_length: number of positions kept, by default that of the model.
        """
        check_at_least("unrolled", unrolled, 0)
        kept = self.memory_length if memory_length is None else memory_length
        check_at_least("memory_length", kept, 0)
        check_tokens("tokens", tokens, self.vocabulary)
        check_tokens("targets", targets, self.vocabulary, tokens.shape)
        with shared_masks(self), shared_parametrizations(self.cell):
            u = self.inject(tokens)  # (B, L, 3 d)
            z = self.start(u)  # (B, L, d)
            memory = memory or empty_memory(u, z.dtype)
            check_memory(memory, tokens.shape[0], self.width)
            context = self.context(u, memory)
            z = self.deq.unroll(z, unrolled, context) if unrolled else self.deq(context, z0=z)[0]
            hidden = self.output_dropout(z).flatten(0, 1)
        loss = self.softmax(hidden, targets.flatten().long(), self.embedding)
        return loss.view(targets.shape), memory.extended(z, u, kept)

    def inject(self, tokens: Tensor) -> Tensor:
        """Return the injection, ``(B, L, 3 d)``, of words ``(B, L)``."""
        return self.injection(self.embedding_dropout(self.embedding(tokens)))  # type: ignore[no-any-return]

    def context(self, u: Tensor, memory: Memory) -> Context:
        """Return the constants of the map for the injection ``u`` after a memory."""
        return self.cell.context(u, self.distances(memory.length + u.shape[1], u), memory)

    def start(self, u: Tensor) -> Tensor:
        """Return the zero state for an injection ``u``, in the dtype of the model."""
        return self.injection.weight.new_zeros(*u.shape[:2], self.width)

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


def _check_clusters(vocabulary: int, width: int, cutoffs: Sequence[int], shrinkage: int) -> None:
    check_at_least("vocabulary", vocabulary, 1)
    check_at_least("shrinkage", shrinkage, 1)
    check_integers("cutoffs", cutoffs)
    bounds = (0, *cutoffs, vocabulary)
    if any(start >= end for start, end in itertools.pairwise(bounds)):
        raise ValueError(
            f"cutoffs must increase strictly between 0 and vocabulary = {vocabulary}, got "
            f"{list(cutoffs)}: a small vocabulary takes cutoffs=(), one cluster"
        )
    if width < shrinkage ** len(cutoffs):
        raise ValueError(
            f"shrinkage must leave the last table a width, with {len(cutoffs)} cutoffs and "
            f"width = {width}, got {shrinkage}"
        )
