"""Dropout with one mask for a whole solve."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from phantomgrad.checks import check_rate


class VariationalDropout(nn.Module):
    r"""Dropout with one mask per forward pass, shared by all evaluations of the map.

    With a new mask at each evaluation, ``f`` would have no equilibrium. The mask is drawn at the
    first call in a pass (a forward of :class:`phantomgrad.DEQ`, or :func:`shared_masks`) and kept
    until the next pass begins, also for calls in between (Gal and Ghahramani, 2016). Before its
    first pass, and after :meth:`resample`, each call draws a mask; in evaluation mode it is the
    identity. For checkpointing, see :func:`phantomgrad.nn.recomputed`.

    Args:
        p: probability of dropping an entry, in [0, 1).
        shared_dims: dimensions along which entries are dropped together, for example ``(2, 3)``
            for whole channels of ``(B, C, H, W)``; negative ones count from the last.
    """

    def __init__(self, p: float, shared_dims: tuple[int, ...] = ()) -> None:
        super().__init__()
        check_rate("p", p)
        self.p = p
        self.shared_dims = shared_dims
        self._mask: Tensor | None = None
        self._in_pass = False  # whether the mask was drawn in a pass
        self._held: list[Tensor | None] = []

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` with the mask of this pass applied, scaled by ``1 / (1 - p)``."""
        if self.draws and not self._held:
            kept = x.new_empty(self._mask_shape(x)).bernoulli_(1 - self.p)
            self._mask, self._in_pass = kept / (1 - self.p), self in (PASS.dropouts or ())
        mask = self.mask
        if mask is None:
            return x
        if mask.shape != self._mask_shape(x):
            raise ValueError(
                f"VariationalDropout keeps one mask, of shape {tuple(mask.shape)}, for a whole "
                f"pass, got an input of shape {tuple(x.shape)}: use one module for each shape, or "
                "call `resample()` if the pass is over"
            )
        return x * mask

    @property
    def mask(self) -> Tensor | None:
        """The factor of the input in this pass, once drawn; ``None`` for the identity."""
        if self._held:
            return self._held[-1]
        return self._mask if self.training else None

    @property
    def draws(self) -> bool:
        """Whether the next call draws a mask."""
        return (self._mask is None or not self._in_pass) and self.training and self.p > 0

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

    def _mask_shape(self, x: Tensor) -> torch.Size:
        if not all(-x.dim() <= d < x.dim() for d in self.shared_dims):
            raise ValueError(
                f"shared_dims must be dimensions of the input, got {self.shared_dims} "
                f"for an input of shape {tuple(x.shape)}"
            )
        shared = {d % x.dim() for d in self.shared_dims}
        return torch.Size(1 if d in shared else n for d, n in enumerate(x.shape))

    def extra_repr(self) -> str:
        """Return rate and shared dimensions."""
        return f"p={self.p}, shared_dims={self.shared_dims}"


class _Pass(threading.local):
    """What belongs to the pass that the thread is in; compilers cannot trace a ContextVar."""

    def __init__(self) -> None:  # both are set here, since compilers guard on them
        self.dropouts: set[VariationalDropout] | None = None
        self.weights: dict[int, Tensor] = {}  # parametrized ones, by the id of their module


PASS = _Pass()


@contextmanager
def shared_masks(module: nn.Module) -> Iterator[None]:
    """Draw the masks of ``module`` once for everything inside the context.

    In a nested equilibrium the masks last for the pass of the outermost one, whose map would
    otherwise change from one evaluation to the next.
    """
    active = PASS.dropouts
    own = {m for m in module.modules() if isinstance(m, VariationalDropout)}
    for dropout in own - (active or set()):
        dropout.resample()
    if active is not None:
        active |= own
        yield
        return
    PASS.dropouts = own
    try:
        yield
    finally:
        PASS.dropouts = None
