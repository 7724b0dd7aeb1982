"""Attention by content and distance, to a segment and the memory before it."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from phantomgrad.nn import NormedLinear, VariationalDropout
from phantomgrad.nn.linear import affine


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


class Context(NamedTuple):
    """The constants of the map during the solve of one segment.

    Attributes:
        injection: u, ``(B, L, 3 d)``, in channels of queries, keys and values.
        keys, values: of the memory, ``(heads, B, M, d_h)``.
        positions: scaled keys of the distances M + L - 1, ..., 0, after a masked dummy,
            ``(heads, M + L + 1, d_h)``.
        masked: whether position j is hidden from position M + i, ``(L, M + L)``.
    """

    injection: Tensor
    keys: Tensor
    values: Tensor
    positions: Tensor
    masked: Tensor


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
        kv = affine(memory.states, weight) + memory.injections[..., width:]
        keys, values = self._heads(kv, 2)
        scaled = self.position(distances) / math.sqrt(self.content_bias.shape[1])  # (M + L, d)
        (positions,) = self._heads(F.pad(scaled, (0, 0, 1, 0)), 1)  # see `_relative`
        masked = mask(memory.length, injection.shape[1], self.window, injection.device)
        return Context(injection, keys, values, positions, masked)

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
            scores.masked_fill_(context.masked, -math.inf)
            .softmax(dim=-1)
            .view(*q.shape[:2], *context.masked.shape)
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


def mask(memory: int, length: int, window: int, device: torch.device) -> Tensor:
    """Return whether position j is hidden from position M + i, ``(L, M + L)``."""
    j = torch.arange(memory + length, device=device)
    distance = j[memory:, None] - j
    return (distance < 0) | (distance >= window)
