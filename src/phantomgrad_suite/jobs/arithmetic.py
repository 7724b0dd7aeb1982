"""How exact float32 is: a setting of torch for products, and another one for convolutions."""

from __future__ import annotations

import torch


def set_float32_precision(precision: str) -> None:
    """Compute products and convolutions of float32 so, for the whole process.

    Left to itself, torch makes products in float32 on CUDA and convolutions in TF32, with which a
    residual ends near 1e-4.

    Args:
        precision: ``highest`` for float32; ``high`` or ``medium`` for TF32 where a device has it,
            see ``torch.set_float32_matmul_precision``.
    """
    torch.set_float32_matmul_precision(precision)
    torch.backends.cudnn.allow_tf32 = precision != "highest"
