"""Copies and pickles of MDEQ, and what it refuses."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from mdeq_small import small
from twins import twins

# --- Copies and pickles ----------------------------------------------------------------------


@pytest.mark.parametrize("used", [False, True])
@twins(lambda model: small(model.deq.gradient))
def test_twins_compute_the_same(twin_of: Any, used: bool) -> None:
    model, images = small(), torch.randn(2, 3, 8, 8)
    if used:
        model(images).sum().backward()
        model.zero_grad()
    state = torch.random.get_rng_state()
    twin = twin_of(model)
    assert twin_of.__name__ == "rebuilt" or torch.equal(torch.random.get_rng_state(), state)
    pairs = zip(model.named_parameters(), twin.named_parameters(), strict=True)
    for (name, ours), (twin_name, theirs) in pairs:
        assert name == twin_name
        assert torch.equal(ours, theirs)
        assert ours.data_ptr() != theirs.data_ptr()
    for one in (model, twin):
        one(images)[:, 0].sum().backward()
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad)


def test_state_of_another_size_is_refused() -> None:
    with pytest.raises(RuntimeError, match="size mismatch for stem"):
        small().load_state_dict(small(channels=(8, 6, 8)).state_dict())


# --- Misuse ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"groups": 0}, "groups must be even and at least 2, got 0"),
        ({"groups": 3}, "groups must be even and at least 2, got 3"),
        ({"channels": (4, 5, 8)}, r"channels must be multiples of groups = 2, got \[4, 5, 8\]"),
        ({"channels": (0, 6, 8)}, r"channels must be multiples of groups = 2, got \[0, 6, 8\]"),
        ({"channels": ()}, r"channels must be multiples of groups = 2, got \[\]"),
        ({"head_channels": (2, 3)}, r"head_channels must be 3 positive widths, .* got \[2, 3\]"),
        ({"head_channels": (2, 0, 4)}, r"head_channels must be 3 positive widths, .* got \[2, 0"),
        ({"features": 0}, "features must be at least 1, got 0"),
        ({"expansion": 0}, "expansion must be at least 1, got 0"),
        ({"stem_strides": (1,)}, r"stem_strides must be two positive numbers, got \[1\]"),
        ({"stem_strides": (1, 0)}, r"stem_strides must be two positive numbers, got \[1, 0\]"),
        ({"dropout": 1.0}, r"dropout must lie in \[0, 1\), got 1"),
        ({"dropout": "abc"}, r"dropout must lie in \[0, 1\), got 'abc'"),
        ({"groups": 8.0}, "groups must be an integer, got 8.0"),
        ({"channels": 8}, "channels must be a list, got 8"),
        ({"channels": (8.0, 8)}, r"channels must hold integers, got \[8.0, 8\]"),
        ({"head_channels": (2.5, 2, 2)}, r"head_channels must hold integers, got \[2.5, 2, 2\]"),
        ({"stem_strides": (1.5, 1)}, r"stem_strides must hold integers, got \[1.5, 1\]"),
        ({"init_std": -0.1}, "init_std must be finite and not negative, got -0.1"),
        ({"init_std": math.nan}, "init_std must be finite and not negative, got nan"),
        ({"init_std": "abc"}, "init_std must be finite and not negative, got 'abc'"),
    ],
)
def test_bad_arguments_are_refused(bad: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small(**bad)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2, 1, 8, 8), r"images must be \(B, 3, H, W\), got \(2, 1, 8, 8\)"),
        ((3, 8, 8), r"images must be \(B, 3, H, W\), got \(3, 8, 8\)"),
        ((2, 3, 8, 10), "sides that are multiples of 4, for 3 scales, got 8 x 10"),
        ((2, 3, 7, 8), "sides that are multiples of 4, for 3 scales, got 7 x 8"),
    ],
)
def test_bad_images_are_refused(shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small()(torch.zeros(shape))


def test_negative_unrolling_is_refused() -> None:
    with pytest.raises(ValueError, match="unrolled must be at least 0, got -1"):
        small()(torch.zeros(2, 3, 8, 8), unrolled=-1)
