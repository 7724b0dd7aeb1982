"""The cell of the synthetic setting: its weight and its map, as in the paper."""

import pytest
import torch

from phantomgrad_suite.studies.synthetic import SyntheticCell, symmetric_matrix

ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu, "linear": lambda x: x}


@pytest.mark.parametrize("norm", [0.5, 0.9999, 3.0])
@pytest.mark.parametrize("size", [1, 2, 33])
def test_matrix_is_symmetric_and_of_the_given_norm(size, norm):
    w = symmetric_matrix(size, norm)
    assert torch.equal(w, w.T)
    assert w.dtype == torch.float64
    assert float(torch.linalg.matrix_norm(w, ord=2)) == pytest.approx(norm, rel=1e-12)
    assert float(torch.linalg.eigvalsh(w)[-1]) == pytest.approx(norm, rel=1e-12)


def test_generator_determines_the_matrix():
    def draw(seed):
        return symmetric_matrix(4, 0.9, torch.Generator().manual_seed(seed))

    first = draw(1)
    torch.rand(3)
    assert torch.equal(draw(1), first)
    assert not torch.allclose(draw(2), first)


@pytest.mark.parametrize("nonlinearity", ACTIVATIONS)
@pytest.mark.parametrize("shape", [(6, 3), (2, 5, 3), (2, 1, 4, 3)])
def test_map(nonlinearity, shape):
    """The map is ``sigma(W (h + u))`` on the last dimension; others are batch dimensions."""
    cell = SyntheticCell(3, 0.9, nonlinearity)
    h, u = torch.randn(2, *shape)
    expected = ACTIVATIONS[nonlinearity](torch.einsum("ij,...j->...i", cell.weight, h + u))
    torch.testing.assert_close(cell(h, u), expected)


def test_weight_is_a_constant_of_the_default_dtype():
    torch.set_default_dtype(torch.float32)
    cell = SyntheticCell(5)
    assert not cell.weight.requires_grad
    assert cell.weight.dtype == torch.float32
    assert [name for name, _ in cell.named_parameters()] == ["weight"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": 0}, "size must be at least 1, got 0"),
        ({"lipschitz": float("nan")}, "lipschitz must be positive, got nan"),
        ({"nonlinearity": "gelu"}, "nonlinearity must be 'linear' or .*, got 'gelu'"),
    ],
)
def test_settings_that_make_no_cell_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        SyntheticCell(**settings)
