"""Process-wide settings of torch for a run: the precision of float32, and ``torch.compile``."""

from __future__ import annotations

import torch
from torch import nn

from phantomgrad.deq import DEQ
from phantomgrad_suite.runs.errors import UserError


def set_float32_precision(precision: str) -> None:
    """Set the precision of float32 matrix products and convolutions for the whole process.

    By default, torch computes products in float32 on CUDA but convolutions in TF32, which stops
    residuals from falling below about 1e-4.

    ``highest`` is float32; ``high`` and ``medium`` are TF32 where the device has it.
    """
    if precision not in ("highest", "high", "medium"):
        raise UserError(f"matmul_precision must be highest, high or medium, got {precision!r}")
    torch.set_float32_matmul_precision(precision)
    torch.backends.cudnn.allow_tf32 = precision != "highest"


def compile_solves(model: nn.Module, mode: str | None, device: torch.device) -> None:
    """Compile the solves of the layers of ``model``, which will be on ``device``; not for ``None``.

    Raises:
        UserError: ``torch.compile`` knows no such mode, or finds no working compiler.
    """
    if mode is None:
        return
    try:  # a failure in the first evaluation would be reported in a hundred lines
        torch.compile(lambda x: x.sin() + x, mode=mode)(torch.ones(2, device=device))
    except Exception as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"runtime.compile={mode} does not work on {device}: {reason}") from error
    for module in model.modules():
        if isinstance(module, DEQ):
            module.compile_solve(mode=mode)
