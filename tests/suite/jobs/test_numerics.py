"""How exact float32 is, of products and of convolutions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from phantomgrad_suite.jobs.environment import set_float32_precision


@pytest.fixture(autouse=True)
def left_as_it_was() -> Iterator[None]:
    yield
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = True  # torch's own


@pytest.mark.parametrize(("precision", "tf32"), [("highest", False), ("high", True)])
def test_convolutions_are_as_exact_as_products(precision: str, tf32: bool) -> None:
    """Torch alone would leave them in TF32."""
    torch.backends.cudnn.allow_tf32 = not tf32
    set_float32_precision(precision)
    assert torch.get_float32_matmul_precision() == precision
    assert torch.backends.cuda.matmul.allow_tf32 == torch.backends.cudnn.allow_tf32 == tf32
