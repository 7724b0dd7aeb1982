"""Embeddings of words, with narrower tables for rare ones, and of distances; the softmax."""

import itertools
import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from phantomgrad.nn import VariationalDropout
from phantomgrad.nn.linear import affine


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
        # Every word is looked up in every table, and one result is kept: this costs less than the
        # model's injection layer, and the host need not wait for the size of each cluster.
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


class AdaptiveLogSoftmax(nn.Module):
    r"""The projected adaptive softmax (Grave et al., 2017), tied to an embedding.

    The head has a column for each word of the first cluster and for each other cluster; a tail has
    the words of its cluster,

    .. math:: \mathrm{head}(h) = \begin{pmatrix} E_0 \\ W \end{pmatrix} Q^\top h +
              \begin{pmatrix} a_0 \\ b \end{pmatrix}, \qquad
              \mathrm{tail}_i(h) = E_i P_i^\top h + a_i ,

    and :math:`\log p(w) = \log \mathrm{softmax}(\mathrm{head})_{-i} +
    \log \mathrm{softmax}(\mathrm{tail}_i)_w` for w in cluster i > 0, whose column of
    the head is the i-th from the end. :math:`E_i, P_i` belong to the embedding, Q does not.
    """

    def __init__(self, embedding: AdaptiveEmbedding) -> None:
        super().__init__()
        width, tails = embedding.width, len(embedding.tables) - 1
        self.projection = nn.Parameter(torch.empty(width, width))
        self.cluster_weight = nn.Parameter(torch.empty(tails, width))
        self.cluster_bias = nn.Parameter(torch.zeros(tails))
        self.biases = nn.ParameterList(torch.zeros(table.shape[0]) for table in embedding.tables)

    def forward(self, hidden: Tensor, words: Tensor, embedding: AdaptiveEmbedding) -> Tensor:
        """Return the negative log-likelihoods in nats, ``(N,)``, of ``words`` given ``hidden``."""
        loss = F.cross_entropy(
            self.head(hidden, embedding), self._columns(words, embedding), reduction="none"
        )
        for i, start in enumerate(embedding.starts[1:], start=1):
            end = start + embedding.tables[i].shape[0]
            # Clusters without a word here are not skipped: every process of a distributed run
            # needs a gradient of every parameter.
            rows = ((words >= start) & (words < end)).nonzero().squeeze(1)
            logits = self.tail(hidden[rows], i, embedding)
            part = F.cross_entropy(logits, words[rows] - start, reduction="none")
            loss = loss.index_add(0, rows, part)
        return loss

    def head(self, hidden: Tensor, embedding: AdaptiveEmbedding) -> Tensor:
        """Return logits of the first cluster's words and of the clusters, ``(N, V_0 + tails)``."""
        weight = torch.cat([embedding.tables[0], self.cluster_weight])
        bias = torch.cat([self.biases[0], self.cluster_bias])
        return affine(hidden @ self.projection, weight, bias)

    def tail(self, hidden: Tensor, i: int, embedding: AdaptiveEmbedding) -> Tensor:
        """Return logits of the words of cluster i > 0, ``(N, V_i)``."""
        narrow = hidden @ embedding.projections[i]  # (N, d_i)
        return affine(narrow, embedding.tables[i], self.biases[i])

    def _columns(self, words: Tensor, embedding: AdaptiveEmbedding) -> Tensor:
        columns, last = words, embedding.tables[0].shape[0] + self.cluster_bias.shape[0]
        for i, start in enumerate(embedding.starts[1:], start=1):
            columns = columns.masked_fill(words >= start, last - i)
        return columns
