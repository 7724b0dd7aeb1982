"""The cell of the synthetic setting: its weight and its map, as in the paper."""

import pytest
import torch

from phantomgrad_suite.studies.synthetic import SyntheticCell, symmetric_matrix

ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu, "linear": lambda x: x}


@pytest.mark.parametrize(("size", "norm"), [(1, 0.5), (2, 0.9999), (33, 3.0)])
def test_matrix_is_symmetric_and_of_the_given_norm(size, norm):
    w = symmetric_matrix(size, norm)
    assert torch.equal(w, w.T)
    assert w.dtype == torch.float64
    assert float(torch.linalg.matrix_norm(w, ord=2)) == pytest.approx(norm, rel=1e-12)
    assert float(torch.linalg.eigvalsh(w)[-1]) == pytest.approx(norm, rel=1e-12)


@pytest.mark.parametrize(
    ("nonlinearity", "shape"), [("tanh", (6, 3)), ("relu", (2, 5, 3)), ("linear", (2, 1, 4, 3))]
)
def test_map(nonlinearity, shape):
    """The map is ``sigma(W (h + u))`` on the last dimension; others are batch dimensions."""
    cell = SyntheticCell(3, 0.9, nonlinearity)
    h, u = torch.randn(2, *shape)
    expected = ACTIVATIONS[nonlinearity](torch.einsum("ij,...j->...i", cell.weight, h + u))
    torch.testing.assert_close(cell(h, u), expected)
