"""Embeddings of words, with narrower tables for rare ones, and of distances."""

import itertools
import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from phantomgrad.nn import VariationalDropout


class AdaptiveEmbedding(nn.Module):
    r"""The embedding of words numbered by decreasing frequency (Baevski and Auli, 2019).

    A word w of cluster i, the i-th interval between cutoffs, is
    :math:`\sqrt{d} \, P_i E_i[w - \mathrm{start}_i]`, with a table :math:`E_i` of width
    :math:`\lfloor d / s^i \rfloor` and a projection :math:`P_i` back to d. The softmax shares the
    tables, and the projections of all clusters but the first.

    Args:
        cutoffs: the first word of each cluster but the first, strictly increasing.
        shrinkage: s, the ratio of the widths of consecutive tables.
    """

    def __init__(self, vocabulary: int, width: int, cutoffs: Sequence[int], shrinkage: int) -> None:
        super().__init__()
        self.width = width
        self.starts = (0, *cutoffs)
        sizes = [end - start for start, end in itertools.pairwise((*self.starts, vocabulary))]
        widths = [width // shrinkage**i for i in range(len(sizes))]
        pairs = list(zip(sizes, widths, strict=True))
        self.tables = nn.ParameterList(torch.empty(size, narrow) for size, narrow in pairs)
        self.projections = nn.ParameterList(torch.empty(width, narrow) for narrow in widths)

    def forward(self, words: Tensor) -> Tensor:
        """Return vectors ``(B, L, d)`` of words ``(B, L)``."""
        words = words.long()  # differences of unsigned integers would wrap around
        clusters = enumerate(zip(self.tables, self.projections, strict=True))
        parts = (self._part(words, i, table, p) for i, (table, p) in clusters)
        # Every word is looked up in every table and only one result is used: less work than an
        # injection, and no host sync for the number of words of a cluster.
        total = next(parts)
        for i, part in enumerate(parts, start=1):
            total = torch.where((words >= self.starts[i]).unsqueeze(-1), part, total)
        return math.sqrt(self.width) * total

    def _part(self, words: Tensor, i: int, table: Tensor, projection: Tensor) -> Tensor:
        rows = (words - self.starts[i]).clamp(0, table.shape[0] - 1)
        return F.linear(F.embedding(rows, table), projection)  # (B, L, d)


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
