"""What all studies share: settings that are refused, seeds, summaries, dense matrices."""

import json

import pytest
import torch
from problems import dense_jacobian as reference_jacobian

from phantomgrad_suite.studies import (
    AscentCondition,
    Dynamics,
    Precision,
    SeriesConvergence,
    SGDConvergence,
)
from phantomgrad_suite.studies.base import dense_jacobian
from phantomgrad_suite.studies.synthetic import SyntheticCell

CPU = torch.device("cpu")


SMALL = {
    Precision: {"size": 8, "rows": 2, "samples": 5, "batch": 3, "steps": (1, 2)},
    Dynamics: {"size": 8, "rows": 2, "samples": 3, "iterations": 4, "lipschitz": [0.9]},
    AscentCondition: {"size": 5, "samples": 2, "lipschitz": [0.9], "steps": (1, 9)},
    SeriesConvergence: {"size": 5, "lipschitz": [0.6]},
    SGDConvergence: {"seeds": 2, "iterations": 12, "size": 3, "data": 8, "batch": 4},
}


@pytest.mark.parametrize("study", SMALL)
def test_seed_determines_the_numbers(study):
    """The global random state has no influence. The numbers are plain, finite data."""
    small = study(**SMALL[study])
    first = small.measure(3, CPU)
    torch.rand(5)
    assert small.measure(3, CPU) == first
    assert small.measure(4, CPU).numbers != first.numbers
    assert json.loads(json.dumps(first.numbers, allow_nan=False)) == first.numbers


def test_dense_jacobian_of_every_row():
    """It is in float64 for a cell in float32; the cell itself does not change."""
    torch.set_default_dtype(torch.float32)
    cell = SyntheticCell(4, 0.9)
    h, u = torch.randn(2, 6, 4)
    ours = dense_jacobian(cell, h, u)
    assert cell.weight.dtype == torch.float32
    torch.set_default_dtype(torch.float64)
    expected = reference_jacobian(lambda h: cell.double()(h, u.double()), h.double())
    torch.testing.assert_close(ours, expected)
