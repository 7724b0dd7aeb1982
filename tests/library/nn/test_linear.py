"""Linear maps through oneDNN, MKL and autocast, against torch's own."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from phantomgrad.nn import linear as module
from phantomgrad.nn.linear import Nonlinearity, activated_linear, affine, linear

LARGE, SMALL = (5000, 64), (7, 5)  # above and below the threshold of oneDNN
PLAIN: dict[Nonlinearity, Callable[[Tensor], Tensor]] = {
    "linear": lambda x: x,
    "relu": torch.relu,
    "tanh": torch.tanh,
}

every_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
every_nonlinearity = pytest.mark.parametrize("nonlinearity", PLAIN)


def leaves(*shapes: tuple[int, ...] | None, dtype: torch.dtype) -> list[Tensor | None]:
    return [s and torch.randn(s, dtype=dtype, requires_grad=True) for s in shapes]


def assert_same(
    ours: Tensor, plain: Tensor, leaves: list[Tensor | None], dtype: torch.dtype
) -> None:
    """Equal values and gradients."""
    tolerance = {"rtol": 1e-4, "atol": 1e-2} if dtype == torch.float32 else {}
    torch.testing.assert_close(ours, plain, **tolerance)
    parts, g = [t for t in leaves if t is not None], torch.randn_like(plain)
    pairs = zip(
        torch.autograd.grad(ours, parts, g), torch.autograd.grad(plain, parts, g), strict=True
    )
    for found, expected in pairs:
        torch.testing.assert_close(found, expected, **tolerance)


@pytest.mark.parametrize("with_addend", [False, True])
@pytest.mark.parametrize("shape", [LARGE, SMALL])
@every_dtype
def test_linear(shape: tuple[int, int], dtype: torch.dtype, with_addend: bool) -> None:
    _, width = shape
    parts = leaves(shape, (width, width), shape if with_addend else None, dtype=dtype)
    x, weight, addend = parts
    plain = x @ weight.T + (0 if addend is None else addend)
    assert_same(linear(x, weight, addend), plain, parts, dtype)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("shape", [(50, 100, 64), LARGE, SMALL, (0, 3, 5)])
@every_dtype
def test_affine(shape: tuple[int, ...], dtype: torch.dtype, biased: bool) -> None:
    parts = leaves(shape, (32, shape[-1]), (32,) if biased else None, dtype=dtype)
    assert_same(affine(*parts), functional.linear(*parts), parts, dtype)


def test_linear_has_derivatives_of_both_orders() -> None:
    parts = leaves((4, 3), (2, 3), (4, 2), dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda *p: linear(*p).pow(3), parts)
    assert torch.autograd.gradgradcheck(lambda *p: linear(*p).pow(3), parts)


def test_onednn_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its operator is not part of torch's public interface."""
    x, weight = (torch.randn(s, dtype=torch.float32) for s in (LARGE, (64, 64)))
    by_onednn = linear(x, weight)
    monkeypatch.setattr(module, "_ONEDNN", None)
    torch.testing.assert_close(linear(x, weight), by_onednn, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("shape", [LARGE, SMALL])
def test_autocast_applies_to_products_and_gradients(shape: tuple[int, int]) -> None:
    rows, width = shape
    parts = leaves(shape, (width, width), shape, dtype=torch.float32)
    x, weight, addend = parts
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours, plain = linear(x, weight, addend), torch.addmm(addend, x, weight.T)
        assert affine(x, weight, addend[0]).dtype == torch.bfloat16
    assert ours.dtype == plain.dtype == torch.bfloat16
    torch.testing.assert_close(ours, plain, rtol=0.05, atol=0.2)
    g = torch.randn_like(plain)
    found, expected = (torch.autograd.grad(product, parts, g) for product in (ours, plain))
    for mine, other in zip(found, expected, strict=True):
        assert mine.dtype == torch.float32
        torch.testing.assert_close(mine, other, rtol=0.05, atol=rows**0.5 / 5)


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("shape", [LARGE, SMALL])
@every_dtype
@every_nonlinearity
def test_activated_linear(
    nonlinearity: Nonlinearity, dtype: torch.dtype, shape: tuple[int, int], trained: bool
) -> None:
    x = torch.randn(shape, dtype=dtype, requires_grad=True)
    weight = torch.randn(shape[1], shape[1], dtype=dtype) / shape[1] ** 0.5
    parts = [x, weight.requires_grad_()] if trained else [x]
    plain = PLAIN[nonlinearity](x @ weight.T)
    assert_same(activated_linear(x, weight, nonlinearity), plain, parts, dtype)


@every_nonlinearity
def test_activated_linear_has_derivatives_of_both_orders(nonlinearity: Nonlinearity) -> None:
    x, weight = torch.randn(4, 3, requires_grad=True), torch.randn(2, 3)

    def squared(x: Tensor, weight: Tensor) -> Tensor:
        return activated_linear(x, weight, nonlinearity).square()

    for arguments in ((x, weight), (x, weight.clone().requires_grad_())):
        assert torch.autograd.gradcheck(squared, arguments)
        assert torch.autograd.gradgradcheck(squared, arguments)


@every_nonlinearity
def test_with_a_constant_weight_only_the_result_is_stored(nonlinearity: Nonlinearity) -> None:
    x, weight = torch.randn(7, 5, requires_grad=True), torch.randn(5, 5)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.data_ptr()), id):
        y = activated_linear(x, weight, nonlinearity)
    assert sorted(kept) == sorted([y.data_ptr(), weight.data_ptr()])


def test_onednn_is_used_above_the_threshold_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
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
