"""What may be done here: record a graph, read numbers."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor


def recording() -> bool:
    """Return whether autograd records; never in an export, whose program has no gradient."""
    return torch.is_grad_enabled() and not torch.compiler.is_exporting()


def set_recording(enabled: bool) -> AbstractContextManager[Any]:
    """Switch autograd on or off; in an export do nothing, or it could not be saved."""
    exporting = torch.compiler.is_exporting()
    return nullcontext() if exporting else torch.set_grad_enabled(enabled)


def readable(z: Tensor) -> bool:
    """Return whether Python can read the numbers in ``z``.

    It cannot in compiled code, in ``torch.vmap``, on ``meta`` and of fake tensors. A solve cannot
    see there that it has converged, and spends its budget.
    """
    if torch.compiler.is_compiling() or z.device.type == "meta":
        return False
    try:
        z.new_zeros((), device="cpu").item()  # of the kind of z, without waiting for its device
    except RuntimeError:
        return False
    return True


def cheap_to_read(z: Tensor) -> bool:
    """Return whether ``.item()`` avoids waiting for a device: for readable tensors on the CPU."""
    return z.device.type == "cpu" and readable(z)
