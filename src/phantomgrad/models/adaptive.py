"""The adaptive embedding of the words of a language model, and the softmax that shares it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from phantomgrad.checks import check_at_least, check_integers


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
        # Clusters without a word are not skipped: every process of a distributed run needs a
        # gradient of every parameter.
        for i, rows in enumerate(self._rows(words, embedding), start=1):
            logits = self.tail(hidden[rows], i, embedding)
            part = F.cross_entropy(logits, words[rows] - embedding.starts[i], reduction="none")
            loss = loss.index_add(0, rows, part)
        return loss

    def log_probs(self, hidden: Tensor, embedding: AdaptiveEmbedding) -> Tensor:
        """Return the log-probabilities of all words, ``(N, V)``, given ``hidden``."""
        head = self.head(hidden, embedding).log_softmax(dim=1)
        first = embedding.tables[0].shape[0]
        tails = [
            self.tail(hidden, i, embedding).log_softmax(dim=1) + head[:, -i, None]
            for i in range(1, len(embedding.tables))
        ]
        return torch.cat([head[:, :first], *tails], dim=1)

    def head(self, hidden: Tensor, embedding: AdaptiveEmbedding) -> Tensor:
        """Return logits of the first cluster's words and of the clusters, ``(N, V_0 + tails)``."""
        weight = torch.cat([embedding.tables[0], self.cluster_weight])
        bias = torch.cat([self.biases[0], self.cluster_bias])
        return F.linear(hidden @ self.projection, weight, bias)

    def tail(self, hidden: Tensor, i: int, embedding: AdaptiveEmbedding) -> Tensor:
        """Return logits of the words of cluster i > 0, ``(N, V_i)``."""
        narrow = hidden @ embedding.projections[i]  # (N, d_i)
        return F.linear(narrow, embedding.tables[i], self.biases[i])

    def _columns(self, words: Tensor, embedding: AdaptiveEmbedding) -> Tensor:
        columns, last = words, embedding.tables[0].shape[0] + self.cluster_bias.shape[0]
        for i, start in enumerate(embedding.starts[1:], start=1):
            columns = columns.masked_fill(words >= start, last - i)
        return columns

    def _rows(self, words: Tensor, embedding: AdaptiveEmbedding) -> Sequence[Tensor]:
        """Return where the words of each cluster but the first are."""
        starts = embedding.starts[1:]
        if not starts:
            return ()
        cluster = torch.stack([words >= start for start in starts]).sum(dim=0)
        sizes = torch.stack([(cluster == i).sum() for i in range(len(starts) + 1)])
        # Sizes are read at once: each reading waits for the device.
        return torch.split(cluster.argsort(stable=True), sizes.tolist())[1:]


def check_clusters(vocabulary: int, width: int, cutoffs: Sequence[int], shrinkage: int) -> None:
    """Raise unless these are the sizes of an :class:`AdaptiveEmbedding`."""
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
