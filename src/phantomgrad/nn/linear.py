"""``x W^T + b`` with the faster of torch's two matrix libraries for the CPU."""

from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from phantomgrad.solvers.context import transformed
from phantomgrad.solvers.maps import working_dtype

# torch.mm uses MKL, which is half as fast as oneDNN in float32 on processors other than Intel's:
# 0.43 against 0.19 ms for (5354, 64) x (64, 64) on one core of an AMD EPYC. In float32, torch calls
# oneDNN only through operators of its compiler, which are used here if they exist.
_ONEDNN = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
_ENOUGH_WORK = 1 << 18  # multiply-adds below which the call costs more than it gains


def linear(x: Tensor, weight: Tensor, addend: Tensor | None = None) -> Tensor:
    r"""Return :math:`x W^\top + B`, ``(N, m)``, differentiable any number of times."""
    x, weight = _as_autocast(x), _as_autocast(weight)
    addend = None if addend is None else _as_autocast(addend)
    result: Tensor = _InputSide.apply(x, addend, [weight])
    if weight.requires_grad and torch.is_grad_enabled():
        result = _Join.apply(result, _WeightSide.apply(weight, [x]))
    return result


def affine(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    r"""Return :math:`W x + b` of vectors x, ``(..., p)``, differentiable any number of times."""
    rows = x.flatten(0, -2)
    if torch.compiler.is_compiling() or not _onednn_applies(rows, weight) or transformed():
        return F.linear(x, weight, bias)
    y = linear(rows, weight)
    if bias is not None:
        y = y.add_(bias)
    return y.view(*x.shape[:-1], weight.shape[0])


Nonlinearity = Literal["linear", "relu", "tanh"]


def activated_linear(x: Tensor, weight: Tensor, nonlinearity: Nonlinearity) -> Tensor:
    r"""Return :math:`\sigma(x W^\top)`, differentiable any number of times.

    If W is constant the CPU computes both in one pass (0.44 against 0.93 ms for tanh,
    (2048, 128) x (128, 128)), and keeps only the result, from which the derivative is taken.
    """
    if weight.requires_grad:
        return _ACTIVATIONS[nonlinearity](linear(x, weight))
    x, weight = _as_autocast(x), _as_autocast(weight)
    result: Tensor = _ActivatedProduct.apply(x, weight, nonlinearity)
    return result


_ACTIVATIONS: dict[Nonlinearity, Callable[[Tensor], Tensor]] = {
    "linear": lambda x: x,
    "relu": torch.relu,
    "tanh": torch.tanh,
}
# Of the cotangent and the result.
_DERIVATIVES: dict[Nonlinearity, Callable[[Tensor, Tensor], Tensor]] = {
    "linear": lambda g, y: g,
    "relu": lambda g, y: torch.ops.aten.threshold_backward(g, y, 0),
    "tanh": torch.ops.aten.tanh_backward,
}


class _ActivatedProduct(torch.autograd.Function):
    """The result as a function of x; W is a constant."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, nonlinearity: Nonlinearity) -> Tensor:
        ctx.nonlinearity = nonlinearity
        if _onednn_applies(x, weight):
            name = "none" if nonlinearity == "linear" else nonlinearity
            y: Tensor = _ONEDNN(x, weight, None, name, [], "")  # type: ignore[misc]
        else:
            y = _ACTIVATIONS[nonlinearity](torch.mm(x, weight.t()))
        ctx.save_for_backward(y, weight)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        y, weight = ctx.saved_tensors
        return linear(_DERIVATIVES[ctx.nonlinearity](g, y), weight.t()), None, None


# A custom function computes the gradients of all its inputs, so an adjoint solve, which needs J^T u
# alone, would pay for the gradient of W at every evaluation. Therefore two nodes share the product,
# each with the other tensor hidden in a list: the engine runs only the node that is needed.


class _InputSide(torch.autograd.Function):
    """The product, as a function of x and the addend."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, addend: Tensor | None, hidden: list[Tensor]) -> Tensor:
        (weight,) = hidden
        ctx.save_for_backward(weight)
        if not _onednn_applies(x, weight):
            return torch.mm(x, weight.t()) if addend is None else torch.addmm(addend, x, weight.t())
        if addend is None:
            return _ONEDNN(x, weight, None, "none", [], "")  # type: ignore[no-any-return, misc]
        return _ONEDNN.binary(x, addend, weight, None, "add")  # type: ignore[no-any-return, union-attr]

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        (weight,) = ctx.saved_tensors
        into_x, into_addend, _ = ctx.needs_input_grad
        return linear(g, weight.t()) if into_x else None, g if into_addend else None, None


class _WeightSide(torch.autograd.Function):
    """Zero, ``(N, m)`` without memory; its backward turns a cotangent into the gradient of W."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, hidden: list[Tensor]) -> Tensor:
        (x,) = hidden
        ctx.save_for_backward(x)
        return weight.new_zeros(1, 1).expand(x.shape[0], weight.shape[0])

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return linear(g.t(), x.t()), None


class _Join(torch.autograd.Function):
    """The first argument, with both on the graph."""

    @staticmethod
    def forward(ctx: Any, product: Tensor, zero: Tensor) -> Tensor:
        ctx.mark_dirty(product)  # no copy, and a relu_ may overwrite it
        return product

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        return g, g


def _as_autocast(t: Tensor) -> Tensor:
    """Cast ``t`` as autocast would, which has no effect in custom functions and in backward."""
    return t.to(working_dtype(t))


def _onednn_applies(x: Tensor, weight: Tensor) -> bool:
    return (
        _ONEDNN is not None
        and x.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and x.shape[0] * weight.numel() >= _ENOUGH_WORK
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and not torch.is_autocast_enabled("cpu")
    )
