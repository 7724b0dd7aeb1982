"""Linear maps through oneDNN, MKL and autocast, against torch's own."""

import pytest
import torch
from torch.nn import functional

from phantomgrad.nn import linear as module
from phantomgrad.nn.linear import activated_linear, affine, linear

LARGE, SMALL = (5000, 64), (7, 5)  # above and below the threshold of oneDNN
PLAIN = {
    "linear": lambda x: x,
    "relu": torch.relu,
    "tanh": torch.tanh,
}

every_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
every_nonlinearity = pytest.mark.parametrize("nonlinearity", PLAIN)


def leaves(*shapes, dtype):
    return [s and torch.randn(s, dtype=dtype, requires_grad=True) for s in shapes]


def assert_same(ours, plain, leaves):
    """Equal values and gradients."""
    tolerance = {"rtol": 1e-4, "atol": 1e-2} if plain.dtype == torch.float32 else {}
    parts, g = [t for t in leaves if t is not None], torch.randn_like(plain)
    found, expected = ((y, *torch.autograd.grad(y, parts, g)) for y in (ours, plain))
    torch.testing.assert_close(found, expected, **tolerance)


@pytest.mark.parametrize("with_addend", [False, True])
@pytest.mark.parametrize("shape", [LARGE, SMALL])
@every_dtype
def test_linear(shape, dtype, with_addend):
    parts = leaves(shape, (shape[1], shape[1]), shape if with_addend else None, dtype=dtype)
    x, weight, addend = parts
    assert_same(linear(*parts), x @ weight.T + (0 if addend is None else addend), parts)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("shape", [(50, 100, 64), SMALL, (0, 3, 5)])
@every_dtype
def test_affine(shape, dtype, biased):
    parts = leaves(shape, (32, shape[-1]), (32,) if biased else None, dtype=dtype)
    assert_same(affine(*parts), functional.linear(*parts), parts)


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("shape", [LARGE, SMALL])
@every_dtype
@every_nonlinearity
def test_activated_linear(nonlinearity, dtype, shape, trained):
    x = torch.randn(shape, dtype=dtype, requires_grad=True)
    weight = torch.randn(shape[1], shape[1], dtype=dtype) / shape[1] ** 0.5
    parts = [x, weight.requires_grad_()] if trained else [x]
    plain = PLAIN[nonlinearity](x @ weight.T)
    assert_same(activated_linear(x, weight, nonlinearity), plain, parts)


@pytest.mark.parametrize(
    ("f", "trained"),
    [
        (lambda x, weight: linear(x, weight, x @ weight.T).pow(3), True),
        *(
            (lambda x, weight, name=name: activated_linear(x, weight, name).square(), trained)
            for name in PLAIN
            for trained in (False, True)
        ),
    ],
)
def test_derivatives_of_both_orders(f, trained):
    x, weight = torch.randn(3, 2, requires_grad=True), torch.randn(2, 2, requires_grad=trained)
    assert torch.autograd.gradcheck(f, (x, weight))
    assert torch.autograd.gradgradcheck(f, (x, weight))


@pytest.mark.parametrize("shape", [LARGE, SMALL])
def test_autocast_applies_to_products_and_gradients(shape):
    parts = leaves(shape, (shape[1], shape[1]), shape, dtype=torch.float32)
    x, weight, addend = parts
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours, plain = linear(x, weight, addend), torch.addmm(addend, x, weight.T)
        assert affine(x, weight, addend[0]).dtype == torch.bfloat16
    torch.testing.assert_close(ours, plain, rtol=0.05, atol=0.2)
    g = torch.randn_like(plain)
    found, expected = (torch.autograd.grad(product, parts, g) for product in (ours, plain))
    torch.testing.assert_close(found, expected, rtol=0.05, atol=shape[0] ** 0.5 / 5)


@every_nonlinearity
def test_with_a_constant_weight_only_the_result_is_stored(nonlinearity):
    x, weight = torch.randn(7, 5, requires_grad=True), torch.randn(5, 5)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.data_ptr()), id):
        y = activated_linear(x, weight, nonlinearity)
    assert sorted(kept) == sorted([y.data_ptr(), weight.data_ptr()])


def test_onednn_is_used_above_the_threshold_in_float32_if_there_is_one(monkeypatch):
    """Its operator is not part of torch's public interface."""
    operator, called = module._ONEDNN, []
    if operator is None:
        pytest.skip("this torch has no such operator")

    def counted(*arguments):
        called.append(arguments[3])
        return operator(*arguments)

    monkeypatch.setattr(module, "_ONEDNN", counted)
    for shape, dtype in ((SMALL, torch.float32), (LARGE, torch.float64), (LARGE, torch.float32)):
        x, weight = torch.randn(shape, dtype=dtype), torch.randn(shape[1], shape[1], dtype=dtype)
        by_onednn = activated_linear(x, weight, "tanh")
    assert called == ["tanh"]
    monkeypatch.setattr(module, "_ONEDNN", None)
    torch.testing.assert_close(activated_linear(x, weight, "tanh"), by_onednn, rtol=1e-5, atol=1e-4)
