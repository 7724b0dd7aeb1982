"""Dropout whose mask holds until it is resampled."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from phantomgrad.nn import VariationalDropout, resample_dropout


def test_the_mask_is_kept_until_resampled() -> None:
    dropout, x = VariationalDropout(0.5), torch.ones(4, 50)
    model = nn.Sequential(nn.Sequential(dropout))
    first = model(x)
    assert torch.equal(model(x), first)
    assert torch.equal(model(3 * x), 3 * first)
    assert dropout.state_dict() == {}
    resample_dropout(model)
    assert not torch.equal(model(x), first)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
def test_entries_are_dropped_at_the_rate_and_rescaled(p: float) -> None:
    y = VariationalDropout(p)(torch.ones(200, 200))
    kept = y[y != 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / (1 - p)))
    assert (y == 0).double().mean().item() == pytest.approx(p, abs=0.02)


def test_evaluation_is_the_identity() -> None:
    x = torch.randn(3, 4)
    dropout = VariationalDropout(0.5)
    dropout(x)
    assert dropout.eval()(x) is x
    assert VariationalDropout(0.0)(x) is x


def test_shared_dimensions_drop_whole_channels() -> None:
    """With ``(2, 3)``, an image ``(B, C, H, W)`` has one decision per sample and channel."""
    y = VariationalDropout(0.5, shared_dims=(2, 3))(torch.ones(8, 16, 3, 3))
    assert torch.equal(y, y[:, :, :1, :1].expand_as(y))
    assert y[:, :, 0, 0].unique().tolist() == [0.0, 2.0]
    assert not torch.equal(y[0], y[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_mask_has_the_dtype_and_device_of_its_input(dtype: torch.dtype) -> None:
    assert VariationalDropout(0.5)(torch.ones(2, 3, dtype=dtype)).dtype == dtype
    assert VariationalDropout(0.5)(torch.ones(2, 3, dtype=dtype, device="meta")).is_meta
