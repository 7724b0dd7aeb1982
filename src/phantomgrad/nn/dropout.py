"""Dropout with one mask for a whole solve."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn

from phantomgrad.checks import check_rate


class VariationalDropout(nn.Module):
    r"""Dropout with one mask per forward pass, shared by all evaluations of the map.

    With a new mask at each evaluation, ``f`` would have no equilibrium. The mask is drawn at the
    first call after :func:`resample_dropout` (which :class:`phantomgrad.DEQ` calls at each
    forward), on the device and in the dtype of its input; in evaluation mode the module is the
    identity (Gal and Ghahramani, 2016). Activation checkpointing needs
    :func:`phantomgrad.nn.recomputed`, which restores the mask of the pass.

    Args:
        p: probability of dropping an entry, in [0, 1).
        shared_dims: dimensions along which entries are dropped together, for example ``(2, 3)``
            for whole channels of ``(B, C, H, W)``.
    """

    def __init__(self, p: float, shared_dims: tuple[int, ...] = ()) -> None:
        super().__init__()
        check_rate("p", p)
        self.p = p
        self.shared_dims = shared_dims
        self._mask: Tensor | None = None
        self._held: list[Tensor | None] = []

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` with the mask of this pass applied, scaled by ``1 / (1 - p)``."""
        if self.draws and not self._held:
            self._mask = self._draw(x)
        mask = self._held[-1] if self._held else self.mask
        return x if mask is None else x * mask

    @property
    def mask(self) -> Tensor | None:
        """The factor of the input in this pass, once drawn; ``None`` for the identity."""
        return self._mask if self.training else None

    @property
    def draws(self) -> bool:
        """Whether the next call draws a mask."""
        return self._mask is None and self.training and self.p > 0

    def resample(self) -> None:
        """Drop the mask, so that the next call draws a new one."""
        self._mask = None

    @contextmanager
    def held(self, mask: Tensor | None) -> Iterator[None]:
        """Use the :attr:`mask` of an earlier pass, in either mode."""
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
        """Return rate and shared dimensions."""
        return f"p={self.p}, shared_dims={self.shared_dims}"


def resample_dropout(module: nn.Module) -> None:
    """Drop the masks of every :class:`VariationalDropout` in ``module``."""
    for child in module.modules():
        if isinstance(child, VariationalDropout):
            child.resample()


_ACTIVE: ContextVar[set[nn.Module] | None] = ContextVar("dropouts of this pass", default=None)


@contextmanager
def shared_masks(module: nn.Module) -> Iterator[None]:
    """Draw the masks of ``module`` once for everything inside the context.

    In a nested equilibrium the masks last for the pass of the outermost one, whose map would
    otherwise change from one evaluation to the next.
    """
    active = _ACTIVE.get()
    own: set[nn.Module] = {m for m in module.modules() if isinstance(m, VariationalDropout)}
    for dropout in own - (active or set()):
        resample_dropout(dropout)
    if active is not None:
        active |= own
        yield
        return
    token = _ACTIVE.set(own)
    try:
        yield
    finally:
        _ACTIVE.reset(token)
