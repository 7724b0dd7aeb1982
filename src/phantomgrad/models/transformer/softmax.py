"""The loss of the next word: an adaptive softmax with the tables of the embedding."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from phantomgrad.models.transformer.embedding import AdaptiveEmbedding
from phantomgrad.nn.linear import affine


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

    Args:
        embedding: defines the sizes. It keeps its tables, which :meth:`forward` takes from it.
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
