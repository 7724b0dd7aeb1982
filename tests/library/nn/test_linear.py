"""The product by oneDNN is the product by MKL, and so with a nonlinearity behind it."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from phantomgrad.nn import linear as module
from phantomgrad.nn.linear import Nonlinearity, activated_linear, affine, linear

LARGE, SMALL = (5000, 64), (7, 5)


@pytest.mark.parametrize("with_addend", [False, True])
@pytest.mark.parametrize("shape", [LARGE, SMALL])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_value_and_gradients_are_those_of_the_plain_product(
    shape: tuple[int, int], dtype: torch.dtype, with_addend: bool
) -> None:
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
    x, weight, addend = (torch.randn(s, requires_grad=True) for s in ((4, 3), (2, 3), (4, 2)))

    def cubed(x: Tensor, weight: Tensor, addend: Tensor) -> Tensor:
        return linear(x, weight, addend).pow(3)

    assert torch.autograd.gradcheck(cubed, (x, weight, addend))
    assert torch.autograd.gradgradcheck(cubed, (x, weight, addend))


def test_without_onednn_the_plain_product_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight = (torch.randn(s, dtype=torch.float32) for s in (LARGE, (64, 64)))
    by_onednn = linear(x, weight)
    monkeypatch.setattr(module, "_ONEDNN", None)
    torch.testing.assert_close(linear(x, weight), by_onednn, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("shape", [LARGE, SMALL])
def test_autocast_reaches_product_and_gradients(shape: tuple[int, int]) -> None:
    rows, width = shape
    parts = [
        torch.randn(s, dtype=torch.float32, requires_grad=True)
        for s in ((rows, width), (width, width), (rows, width))
    ]
    x, weight, addend = parts
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours, plain = linear(x, weight, addend), torch.addmm(addend, x, weight.T)
    assert ours.dtype == plain.dtype == torch.bfloat16
    torch.testing.assert_close(ours, plain, rtol=0.05, atol=0.2)
    g = torch.randn_like(plain)
    found, expected = (torch.autograd.grad(product, parts, g) for product in (ours, plain))
    for mine, other in zip(found, expected, strict=True):
        assert mine.dtype == torch.float32
        torch.testing.assert_close(mine, other, rtol=0.05, atol=rows**0.5 / 5)


# W x + b --------------------------------------------------------------------------------------


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("shape", [(50, 100, 64), LARGE, SMALL, (0, 3, 5)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_affine_map_and_its_gradients_are_those_of_torch(
    shape: tuple[int, ...], dtype: torch.dtype, biased: bool
) -> None:
    x = torch.randn(shape, dtype=dtype, requires_grad=True)
    weight = torch.randn(32, shape[-1], dtype=dtype, requires_grad=True)
    bias = torch.randn(32, dtype=dtype, requires_grad=True) if biased else None
    parts = [t for t in (x, weight, bias) if t is not None]
    ours, plain = affine(x, weight, bias), functional.linear(x, weight, bias)
    tolerance = {"rtol": 1e-4, "atol": 1e-2} if dtype == torch.float32 else {}
    torch.testing.assert_close(ours, plain, **tolerance)
    g = torch.randn_like(plain)
    for got, expected in zip(
        torch.autograd.grad(ours, parts, g), torch.autograd.grad(plain, parts, g), strict=True
    ):
        torch.testing.assert_close(got, expected, **tolerance)


def test_affine_map_follows_autocast() -> None:
    x, weight = (torch.randn(s, dtype=torch.float32, requires_grad=True) for s in (LARGE, (64, 64)))
    bias = torch.randn(64, dtype=torch.float32, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = affine(x, weight, bias)
    assert y.dtype == torch.bfloat16
    gradients = torch.autograd.grad(y.sum(), (x, weight, bias))
    assert {g.dtype for g in gradients} == {torch.float32}


# sigma(x W^T) ---------------------------------------------------------------------------------

PLAIN: dict[Nonlinearity, Callable[[Tensor], Tensor]] = {
    "linear": lambda x: x,
    "relu": torch.relu,
    "tanh": torch.tanh,
}


def derivatives(f: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, ...]:
    """Value, first derivative along g, and the derivative of its square."""
    y = f(x)
    torch.manual_seed(1)
    (first,) = torch.autograd.grad(y, x, torch.randn_like(y), create_graph=True)
    if not first.requires_grad:  # the map is linear
        return y, first, torch.zeros_like(x)
    (second,) = torch.autograd.grad(
        first.square().sum(), x, allow_unused=True, materialize_grads=True
    )
    return y, first, second


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("shape", [LARGE, SMALL])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("nonlinearity", PLAIN)
def test_activated_product_and_its_derivatives_are_the_plain_ones(
    nonlinearity: Nonlinearity, dtype: torch.dtype, shape: tuple[int, int], trained: bool
) -> None:
    rows, width = shape
    x = torch.randn(rows, width, dtype=dtype, requires_grad=True)
    weight = (torch.randn(width, width, dtype=dtype) / width**0.5).requires_grad_(trained)
    ours = derivatives(lambda x: activated_linear(x, weight, nonlinearity), x)
    plain = derivatives(lambda x: PLAIN[nonlinearity](x @ weight.T), x)
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {}
    for got, expected in zip(ours, plain, strict=True):
        torch.testing.assert_close(got, expected, **tolerance)


@pytest.mark.parametrize("nonlinearity", PLAIN)
def test_activated_product_passes_gradcheck(nonlinearity: Nonlinearity) -> None:
    x, weight = torch.randn(4, 3, requires_grad=True), torch.randn(2, 3)

    def squared(x: Tensor, weight: Tensor) -> Tensor:
        return activated_linear(x, weight, nonlinearity).square()

    for arguments in ((x, weight), (x, weight.clone().requires_grad_())):
        assert torch.autograd.gradcheck(squared, arguments)
        assert torch.autograd.gradgradcheck(squared, arguments)


@pytest.mark.parametrize("nonlinearity", PLAIN)
def test_a_constant_weight_keeps_the_result_alone(nonlinearity: Nonlinearity) -> None:
    x, weight = torch.randn(7, 5, requires_grad=True), torch.randn(5, 5)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.data_ptr()), id):
        y = activated_linear(x, weight, nonlinearity)
    assert sorted(kept) == sorted([y.data_ptr(), weight.data_ptr()])


def test_one_pass_of_onednn_is_taken_where_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    if module._ONEDNN is None:
        pytest.skip("this torch has no such operator")
    called, operator = [], module._ONEDNN

    def counted(*arguments: object) -> Tensor:
        called.append(arguments[3])
        return operator(*arguments)  # type: ignore[no-any-return]

    monkeypatch.setattr(module, "_ONEDNN", counted)
    for shape, dtype in ((LARGE, torch.float32), (SMALL, torch.float32), (LARGE, torch.float64)):
        x, weight = torch.randn(shape, dtype=dtype), torch.randn(shape[1], shape[1], dtype=dtype)
        activated_linear(x, weight, "tanh")
    assert called == ["tanh"]
