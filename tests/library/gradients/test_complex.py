"""Complex parameters, as Fourier neural operators have them."""

import pytest
import torch
from torch import nn

import phantomgrad as pg


class Spectral(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(0.3 * torch.randn(3, dtype=torch.complex128))

    def forward(self, z, x):
        return torch.tanh(torch.fft.irfft(torch.fft.rfft(z) * self.weight, n=4) + x)


@pytest.mark.parametrize(
    "gradient",
    [
        pg.UnrolledPhantomGradient(60, 1.0),
        pg.NeumannPhantomGradient(60, 1.0),
        pg.ImplicitGradient(solver=pg.Broyden(max_evaluations=25, tol=1e-13)),
    ],
)
def test_complex_parameters_get_their_gradient(gradient):
    """Beside central differences along the real and the imaginary axis."""
    cell, x, eps = Spectral(), torch.randn(2, 4), 1e-6
    layer = pg.DEQ(cell, pg.FixedPoint(max_evaluations=80, tol=1e-14), gradient)
    layer(x).z.square().sum().backward()
    for i in range(3):
        slopes = []
        for axis in (1, 1j):
            losses = []
            for step in (eps, -eps):
                with torch.no_grad():
                    cell.weight[i] += step * axis
                    losses.append(layer(x).z.square().sum())
                    cell.weight[i] -= step * axis
            slopes.append(float(losses[0] - losses[1]) / (2 * eps))
        assert complex(cell.weight.grad[i]) == pytest.approx(complex(*slopes), abs=1e-7)
