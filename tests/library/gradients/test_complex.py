"""Complex parameters, as Fourier neural operators have them, in transforms and in one graph."""

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, jvp

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
        pg.UnrolledPhantomGradient(3, 0.5),
        pg.NeumannPhantomGradient(3, 0.5),
        pg.ImplicitGradient(solver=pg.Broyden(max_evaluations=25, tol=1e-13)),
    ],
)
def test_complex_parameters_get_their_gradient(gradient):
    layer = pg.DEQ(Spectral(), pg.FixedPoint(max_evaluations=40, tol=1e-13), gradient)
    weights, x = {"cell.weight": layer.cell.weight.detach()}, torch.randn(2, 4)

    def loss(weights):
        return functional_call(layer, weights, (x,)).z.square().sum()

    layer(x).z.square().sum().backward()
    expected, layer.cell.weight.grad = layer.cell.weight.grad, None
    torch.testing.assert_close(grad(loss)(weights)["cell.weight"], expected)
    direction = torch.randn_like(expected)
    slope = jvp(loss, (weights,), ({"cell.weight": direction},))[1]
    torch.testing.assert_close(slope, (expected.conj() * direction).real.sum())
    torch.compile(layer, backend="eager", fullgraph=True)(x).z.square().sum().backward()
    torch.testing.assert_close(layer.cell.weight.grad, expected)
