"""Dropout whose mask holds until it is resampled."""

import pytest
import torch
from torch import nn

from phantomgrad.nn import VariationalDropout, one_pass


def test_the_mask_is_kept_until_the_next_pass():
    dropout, x = VariationalDropout(0.5), torch.ones(4, 50)
    model = nn.Sequential(nn.Sequential(dropout))
    with one_pass(model):
        first = model(x)
        assert torch.equal(model(x), first)
        assert torch.equal(model(3 * x), 3 * first)
    assert dropout.state_dict() == {}
    with one_pass(model):
        assert not torch.equal(model(x), first)


def test_outside_of_a_pass_each_call_draws_a_mask():
    """Also for a smaller last batch."""
    dropout = VariationalDropout(0.5)
    assert not torch.equal(dropout(torch.ones(4, 50)), dropout(torch.ones(4, 50)))
    assert dropout(torch.ones(3, 50)).shape == (3, 50)


def test_two_shapes_in_one_pass_are_refused():
    dropout = VariationalDropout(0.5)
    with one_pass(dropout):
        dropout(torch.ones(4, 50))
        with pytest.raises(ValueError, match=r"one mask, of shape \(4, 50\), .* \(4, 5\)"):
            dropout(torch.ones(4, 5))


@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
def test_entries_are_dropped_at_the_rate_and_rescaled(p):
    y = VariationalDropout(p)(torch.ones(200, 200))
    kept = y[y != 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / (1 - p)))
    assert (y == 0).double().mean().item() == pytest.approx(p, abs=0.02)


def test_evaluation_is_the_identity():
    x = torch.randn(3, 4)
    dropout = VariationalDropout(0.5)
    dropout(x)
    assert dropout.eval()(x) is x
    assert VariationalDropout(0.0)(x) is x


@pytest.mark.parametrize("shared", [(2, 3), (-2, -1)])
def test_shared_dimensions_drop_whole_channels(shared):
    """``(2, 3)`` of ``(B, C, H, W)`` share one decision per sample and channel."""
    y = VariationalDropout(0.5, shared_dims=shared)(torch.ones(8, 16, 3, 3))
    assert torch.equal(y, y[:, :, :1, :1].expand_as(y))
    assert y[:, :, 0, 0].unique().tolist() == [0.0, 2.0]
    assert not torch.equal(y[0], y[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_mask_has_the_dtype_and_device_of_its_input(dtype):
    assert VariationalDropout(0.5)(torch.ones(2, 3, dtype=dtype)).dtype == dtype
    assert VariationalDropout(0.5)(torch.ones(2, 3, dtype=dtype, device="meta")).is_meta
