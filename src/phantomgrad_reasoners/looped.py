"""A looped language model: prelude, loop, coda (Geiping et al., 2025)."""

from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from phantomgrad.checks import check_at_least, check_tokens
from phantomgrad.deq import DEQ
from phantomgrad.gradients import GradientEstimator
from phantomgrad.models.recursive import (
    Linear,
    ReasoningBlock,
    RotaryAttention,
    truncated_normal_,
)
from phantomgrad.solvers import Solver
from phantomgrad_suite.data.text.streams import TokenBatch
from phantomgrad_suite.tasks.base import Task
from phantomgrad_suite.tasks.means import Means


class Loop(nn.Module):
    r"""The repeated part, :math:`z \leftarrow \mathrm{blocks}(W [z; e])` with an injection e."""

    def __init__(self, width: int, blocks: nn.Module) -> None:
        super().__init__()
        self.adapter = Linear(2 * width, width)
        self.blocks = blocks

    def forward(self, z: Tensor, e: Tensor) -> Tensor:
        """Return the next state, ``(B, L, D)``."""
        return self.blocks(self.adapter(torch.cat([z, e], dim=-1)))  # type: ignore[no-any-return]


class Prediction(NamedTuple):
    """What a :class:`LoopedTransformer` returns.

    Attributes:
        logits: of the token after each position, ``(B, L, V)``.
        state: z, off the graph: where further loops start.
    """

    logits: Tensor
    state: Tensor


class LoopedTransformer(nn.Module):
    r"""A causal transformer whose middle part is repeated.

    .. math:: e = \mathrm{prelude}(\sqrt{D} \, E_{\mathrm{token}}), \qquad
              z \leftarrow \mathrm{loop}(z, e) \quad \text{from zero}, \qquad
              \mathrm{logits} = W \, \mathrm{coda}(z)

    The loops are the evaluations of a :class:`phantomgrad.DEQ`: ``Steps(8)`` with
    ``BackpropThroughSolver()`` makes and records eight. A segment of text is seen on its own.

    Args:
        vocabulary: V, the number of tokens.
        solver, gradient: of the loops.
        width: D.
        heads, multiple: of a :class:`phantomgrad.models.recursive.ReasoningBlock`.
        prelude, loop, coda: numbers of blocks.
    """

    def __init__(
        self,
        vocabulary: int,
        solver: Solver,
        gradient: GradientEstimator,
        *,
        width: int = 64,
        heads: int = 4,
        multiple: int = 16,
        prelude: int = 1,
        loop: int = 1,
        coda: int = 1,
    ) -> None:
        super().__init__()
        for name, count in {"prelude": prelude, "loop": loop, "coda": coda}.items():
            check_at_least(name, count, 1)
        if width % (2 * heads):
            raise ValueError(f"width must be a multiple of 2 heads = {2 * heads}, got {width}")

        def blocks(count: int) -> nn.Sequential:
            mixers = (RotaryAttention(width, heads, causal=True) for _ in range(count))
            return nn.Sequential(*(ReasoningBlock(width, mixer, multiple) for mixer in mixers))

        self.vocabulary = vocabulary
        self.embedding = nn.Embedding(vocabulary, width)
        truncated_normal_(self.embedding.weight, width**-0.5)
        self.prelude = blocks(prelude)
        self.deq = DEQ(Loop(width, blocks(loop)), solver, gradient)
        self.coda = blocks(coda)
        self.output = Linear(width, vocabulary)

    def forward(self, tokens: Tensor, state: Tensor | None = None) -> Prediction:
        """Return the :class:`Prediction` for tokens ``(B, L)``, after loops from ``state``."""
        check_tokens("tokens", tokens, self.vocabulary)
        e = self.prelude(self.embedding(tokens.long()) * self.embedding.embedding_dim**0.5)
        z, _ = self.deq(e, z0=state)
        return Prediction(self.output(self.coda(z)), z.detach())


class LoopedLanguageModelling(Task):
    """Mean negative log-likelihood of the next token, and perplexity, by number of loops.

    Training and ``perplexity`` take the loops of the solver. ``perplexity_at_<n>`` takes n times as
    many, for each n of ``evaluated_segments``.
    """

    batch_type = TokenBatch

    def __init__(
        self, *, evaluated_segments: Sequence[int] = (), metric: str = "perplexity", **task: Any
    ) -> None:
        super().__init__(metric=metric, metric_mode="min", **task)
        for count in evaluated_segments:
            check_at_least("evaluated_segments", count, 1)
        self._evaluated = {1, *evaluated_segments}
        pairs = product(self.evaluation_sets, self._evaluated)
        self._losses = Means(_key(*pair) for pair in pairs)

    def training_loss(self, batch: TokenBatch) -> tuple[Tensor, int]:
        logits = self.apply_model(batch.tokens).logits
        return token_losses(logits, batch.targets).mean(), batch.targets.numel()

    def validation_step(self, batch: TokenBatch, batch_idx: int, dataloader_idx: int = 0) -> None:
        part, state = self.evaluation_sets[dataloader_idx], None
        for segment in range(1, max(self._evaluated) + 1):
            logits, state = self.apply_model(batch.tokens, state)
            if segment in self._evaluated:
                losses = token_losses(logits, batch.targets)
                self._losses.add(_key(part, segment), losses)

    def on_validation_epoch_end(self) -> None:
        for name, loss in self._losses.take().items():
            self.log(name, loss.exp(), sync_dist=True)
            if name == "validation/perplexity":
                self.log("validation/loss", loss, sync_dist=True)


def token_losses(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the negative log-likelihoods of ``targets``, ``(B, L)``, in float32 at least."""
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return F.cross_entropy(wide.mT, targets, reduction="none")


def _key(part: str, segments: int) -> str:
    return f"{part}/perplexity" + (f"_at_{segments}" if segments > 1 else "")
