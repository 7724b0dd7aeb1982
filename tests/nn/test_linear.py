"""The product by oneDNN is the product by MKL."""

import pytest
import torch
from torch import Tensor

from phantomgrad.nn import linear as module
from phantomgrad.nn.linear import linear

LARGE, SMALL = (5000, 64), (7, 5)


@pytest.mark.parametrize("with_addend", [False, True])
@pytest.mark.parametrize("shape", [LARGE, SMALL])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_value_and_gradients_are_those_of_the_plain_product(
    shape: tuple[int, int], dtype: torch.dtype, with_addend: bool
) -> None:
    """x W^T + B and its three gradients, in both precisions, above and below the threshold."""
    rows, width = shape
    x = torch.randn(rows, width, dtype=dtype, requires_grad=True)
    weight = torch.randn(width, width, dtype=dtype, requires_grad=True)
    addend = torch.randn(rows, width, dtype=dtype, requires_grad=True) if with_addend else None
    parts = [t for t in (x, weight, addend) if t is not None]
    plain = x @ weight.T + (0 if addend is None else addend)
    g = torch.randn_like(plain)
    ours = linear(x, weight, addend)
    tolerance = {"rtol": 1e-4, "atol": 1e-2} if dtype == torch.float32 else {}
    torch.testing.assert_close(ours, plain, **tolerance)
    for got, expected in zip(
        torch.autograd.grad(ours, parts, g), torch.autograd.grad(plain, parts, g), strict=True
    ):
        torch.testing.assert_close(got, expected, **tolerance)


def test_derivatives_of_both_orders_are_those_of_finite_differences() -> None:
    """gradcheck and gradgradcheck in float64."""
    x, weight, addend = (torch.randn(s, requires_grad=True) for s in ((4, 3), (2, 3), (4, 2)))

    def cubed(x: Tensor, weight: Tensor, addend: Tensor) -> Tensor:
        return linear(x, weight, addend).pow(3)

    assert torch.autograd.gradcheck(cubed, (x, weight, addend))
    assert torch.autograd.gradgradcheck(cubed, (x, weight, addend))


def test_without_onednn_the_plain_product_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator is not part of torch's public face: it may be missing one day."""
    x, weight = (torch.randn(s, dtype=torch.float32) for s in (LARGE, (64, 64)))
    by_onednn = linear(x, weight)
    monkeypatch.setattr(module, "_ONEDNN", None)
    torch.testing.assert_close(linear(x, weight), by_onednn, rtol=1e-5, atol=1e-4)
