"""Distributions: exact values of known samples."""

from __future__ import annotations

import math

import pytest
import torch

from phantomgrad_suite.studies.base import distribution, silently


def test_the_percentiles_of_0_to_100_are_those_numbers() -> None:
    """In whatever order and shape they come."""
    found = distribution(torch.cat([torch.randperm(101), torch.tensor([50])]).view(2, 51))
    assert (found["n"], found["percentiles"][0], found["percentiles"][100]) == (102, 0, 100)
    found = distribution(torch.randperm(101))
    assert found["percentiles"] == [float(i) for i in range(101)]
    assert (found["n"], found["mean"]) == (101, 50.0)
    assert found["std"] == pytest.approx(math.sqrt((101**2 - 1) / 12), rel=1e-7)


def test_percentiles_are_entries_and_not_between_them() -> None:
    """The nearest ones: the median of three is the middle one, that of two is one of them."""
    found = distribution(torch.tensor([7.0, -1.0, 0.5]))["percentiles"]
    assert (found[0], found[50], found[100]) == (-1.0, 0.5, 7.0)
    assert found[:25] == [-1.0] * 25
    assert set(distribution(torch.tensor([1.0, 2.0]))["percentiles"]) == {1.0, 2.0}


def test_a_single_value_is_all_of_them() -> None:
    assert distribution(torch.tensor(0.1)) == {
        "n": 1,
        "mean": 0.1,
        "std": 0.0,
        "percentiles": [0.1] * 101,
    }


def test_numbers_have_eight_digits() -> None:
    found = distribution(torch.tensor([1 / 3, 123456.789123456]))
    assert (found["percentiles"][0], found["percentiles"][100]) == (0.33333333, 123456.79)
    assert found["mean"] == 61728.561  # 61728.56123...


def test_float32_is_averaged_in_float64() -> None:
    """The sum of 2^24 and 1 is no float32."""
    values = torch.tensor([2.0**24, 1.0], dtype=torch.float32)
    assert distribution(values)["mean"] == 2.0**23 + 0.5


def test_silence_passes_everything_on() -> None:
    assert list(silently([3, 1, 2], "unheard")) == [3, 1, 2]
