"""A process of a distributed run that is gone, as the others see it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch.distributed import DistError

from phantomgrad.errors import UserError

# What gloo says, as plain RuntimeErrors; NCCL has errors of its own.
_SIGNS = ("closed by peer", "reset by peer", "broken pipe", "timed out waiting", "socket timeout")


@contextmanager
def loss_said() -> Iterator[None]:
    """Turn the error of a process that waits in vain into a sentence.

    Raises:
        UserError: another process of the run was lost.
    """
    try:
        yield
    except RuntimeError as error:
        lines = str(error).strip().splitlines() or [repr(error)]
        if not isinstance(error, DistError) and not any(s in str(error).lower() for s in _SIGNS):
            raise
        raise UserError(
            "another process of this run was lost, or hangs; its own last words say why. The same "
            f"command goes on from the last checkpoint ({lines[0]})"
        ) from error
