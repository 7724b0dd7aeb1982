"""The map of the DEQ-Transformer: one attention block, one feed-forward block.

A state is a segment of vectors, ``(B, L, d)``.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from phantomgrad.models.transformer.attention import Context, Memory, RelativeAttention
from phantomgrad.nn import NormedLinear, VariationalDropout, recomputed


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
        return recomputed(self._maps, y, within=self)  # type: ignore[no-any-return]

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
