"""Dropout whose mask holds for a whole solve."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn

from phantomgrad.checks import check_rate


class VariationalDropout(nn.Module):
    r"""Dropout with one mask per forward pass of the model, shared by all evaluations of f.

    Were the mask redrawn at each evaluation, ``f`` would have no equilibrium. The mask is drawn at
    the first call after :func:`resample_dropout` (which :class:`phantomgrad.DEQ` calls at each
    forward), on the device and in the dtype of its input; in evaluation mode the module is the
    identity. (Gal and Ghahramani, 2016.) What is computed again in the backward pass needs
    :func:`phantomgrad.nn.recomputed` to find the mask of its own pass.

    Args:
        p: probability of dropping an entry, in [0, 1).
        shared_dims: dimensions along which one decision is shared, for example ``(2, 3)`` to drop
            whole channels of ``(B, C, H, W)``.
    """

    def __init__(self, p: float, shared_dims: tuple[int, ...] = ()) -> None:
        super().__init__()
        check_rate("p", p)
        self.p = p
        self.shared_dims = shared_dims
        self._mask: Tensor | None = None
        self._held: list[Tensor | None] = []

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` with the mask of this forward pass applied, scaled by ``1 / (1 - p)``."""
        if self.draws and not self._held:
            self._mask = self._draw(x)
        mask = self._held[-1] if self._held else self.mask
        return x if mask is None else x * mask

    @property
    def mask(self) -> Tensor | None:
        """What the input is multiplied by in this pass, once drawn; ``None`` if by nothing."""
        return self._mask if self.training else None

    @property
    def draws(self) -> bool:
        """Whether the next call draws a mask."""
        return self._mask is None and self.training and self.p > 0

    def resample(self) -> None:
        """Forget the mask: the next call draws another."""
        self._mask = None

    @contextmanager
    def held(self, mask: Tensor | None) -> Iterator[None]:
        """Multiply by what :attr:`mask` was in another pass, whatever the mode is now."""
        self._held.append(mask)
        try:
            yield
        finally:
            self._held.pop()

    def _draw(self, x: Tensor) -> Tensor:
        shape = [1 if d in self.shared_dims else n for d, n in enumerate(x.shape)]
        keep = torch.empty(shape, dtype=x.dtype, device=x.device).bernoulli_(1 - self.p)
        return keep / (1 - self.p)

    def extra_repr(self) -> str:
        """Return the rate and what shares a decision."""
        return f"p={self.p}, shared_dims={self.shared_dims}"


def resample_dropout(module: nn.Module) -> None:
    """Forget the masks of every :class:`VariationalDropout` in ``module``."""
    for child in module.modules():
        if isinstance(child, VariationalDropout):
            child.resample()


_RUNNING: ContextVar[set[nn.Module] | None] = ContextVar("the dropouts of this pass", default=None)


@contextmanager
def shared_masks(module: nn.Module) -> Iterator[None]:
    """Draw the masks of ``module`` once for what is done inside.

    Inside the map of another equilibrium they are drawn once for that one: were they redrawn at
    each of its evaluations, it would have none.
    """
    running = _RUNNING.get()
    own: set[nn.Module] = {m for m in module.modules() if isinstance(m, VariationalDropout)}
    for dropout in own - (running or set()):
        resample_dropout(dropout)
    if running is not None:
        running |= own
        yield
        return
    outside = _RUNNING.set(own)
    try:
        yield
    finally:
        _RUNNING.reset(outside)
