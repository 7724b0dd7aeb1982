"""``torch.compile`` for the solves of a model that is to be trained."""

from __future__ import annotations

import torch
from torch import nn

from phantomgrad.deq import DEQ
from phantomgrad_suite.runs.errors import UserError

_MODES = ("default", "reduce-overhead", "max-autotune")


def compile_solves(model: nn.Module, mode: str | None, device: torch.device) -> None:
    """Compile the solves of every equilibrium layer of ``model``.

    Args:
        model: the network, which need not be on ``device`` yet.
        mode: of ``torch.compile``; ``None`` leaves the model as it is.
        device: on which it will be.

    Raises:
        UserError: there is no such mode, or no working compiler.
    """
    if mode is None:
        return
    if mode not in _MODES:
        raise UserError(f"compile must be null, {', '.join(_MODES)}, got {mode!r}")
    _try(mode, device)
    for module in model.modules():
        if isinstance(module, DEQ):
            module.compile_solve(mode=mode)


def _try(mode: str, device: torch.device) -> None:
    """Compile a line, here and now: the first evaluation would say it in a hundred lines."""
    try:
        torch.compile(lambda x: x.sin() + x, mode=mode)(torch.ones(2, device=device))
    except Exception as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(
            f"compile={mode} needs a compiler for {device} that works here, or compile=null: "
            f"{reason}"
        ) from error
