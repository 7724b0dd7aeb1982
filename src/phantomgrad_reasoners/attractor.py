"""Attractor models for text (arXiv:2605.12466): a backbone proposes, the solver refines."""

from typing import Any

from torch import Tensor, nn

from phantomgrad.gradients import GradientEstimator
from phantomgrad.models.transformer import TransformerCell, TransformerLM, empty_memory
from phantomgrad.solvers import Solver


class AttractorLM(TransformerLM):
    r"""A DEQ-Transformer whose solve starts from the proposal of an explicit backbone.

    .. math:: h = g(\mathrm{embedding}(x)), \quad u = W_u h + b_u, \quad z_0 = h, \quad
              z^* = f(z^*, u; \mathrm{memory})

    The backbone g is one application of a :class:`phantomgrad.models.transformer.TransformerCell`
    with weights of its own, which sees the segment alone; f is that of :class:`TransformerLM`. The
    start has no gradient, so g learns through u. With the solver ``Steps(0)`` the proposal is the
    answer: as training draws it to the equilibrium, the paper removes the solver at inference.

    Args:
        vocabulary, solver, gradient, width, heads, inner, options: see :class:`TransformerLM`.
    """

    def __init__(
        self,
        vocabulary: int,
        solver: Solver,
        gradient: GradientEstimator,
        *,
        width: int = 64,
        heads: int = 4,
        inner: int = 256,
        **options: Any,
    ) -> None:
        options |= {"width": width, "heads": heads, "inner": inner}
        super().__init__(vocabulary, solver, gradient, **options)
        self.backbone = TransformerCell(width, heads, inner, pre_norm=self.cell.pre_norm)
        self.backbone_injection = nn.Linear(width, 3 * width)

    def embed(self, tokens: Tensor) -> Tensor:
        """Return the proposal of the backbone, ``(B, L, d)``."""
        x = super().embed(tokens)
        u = self.backbone_injection(x)
        context = self.backbone.context(u, self.distances(x.shape[1], u), empty_memory(u, x.dtype))
        return self.backbone(x, context)  # type: ignore[no-any-return]

    def start(self, x: Tensor) -> Tensor:
        """Return the proposal as the start."""
        return x.detach()
