"""Cotangents in function transforms (grad, vjp, jvp, vmap, their compositions) and in graphs."""

from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.autograd import forward_ad

from phantomgrad.solvers import Map
from phantomgrad.solvers.accelerators import transformed, transforms, unwrapped

NO_DERIVATIVE = (
    "this gradient estimate has no derivative of its own (create_graph=True): "
    "use ImplicitGradient(order=2) for exact second derivatives, or "
    "UnrolledPhantomGradient, which is the gradient of the steps it unrolls"
)


class PureMap:
    """A map with the tensors that it closes over: ``f(z) = pure(z, *tensors)``.

    Transforms and compilers hand derivatives only to the arguments of a custom function.
    """

    def __init__(self, f: Map, pure: Callable[..., Tensor], tensors: tuple[Tensor, ...]) -> None:
        self._f = f
        self.pure = pure
        self.tensors = tensors

    def __call__(self, z: Tensor) -> Tensor:
        """Return ``f(z)``."""
        return self._f(z)


def attach_purely(f: PureMap, z_star: Tensor, transform: Any, shown: Tensor) -> Tensor:
    """Attach ``shown``; its cotangent v becomes that of ``f(z_star)``, ``transform(vjp, v)``."""
    z, value = z_star.detach(), shown.detach()
    _refuse_others(f, z)
    if forward_ad._current_level >= 0 and not transforms():
        raise RuntimeError(
            "this gradient estimate has no forward mode in torch.autograd.forward_ad: "
            "use torch.func.jvp"
        )
    kind = _PureTransform if torch.compiler.is_compiling() else _TwoWayTransform
    out: Tensor = kind.apply(value, f.pure, transform, z, *f.tensors)
    return out


def _refuse_others(f: PureMap, z: Tensor) -> None:
    """Raise if derivatives would not reach what the map depends on; a compiler drops the call."""
    fz: Any = f.pure(z, *(t.detach() for t in f.tensors))
    while fz is not None:
        dual: Any = forward_ad.unpack_dual(fz) if transformed() else None  # type: ignore[no-untyped-call]
        if fz.requires_grad or (dual and dual.tangent is not None):
            raise ValueError(
                "the cell depends on a tensor that is not one of its parameters, buffers or "
                "inputs, and would get no gradient in one graph (fullgraph=True) or in a transform "
                "of torch.func: pass it to the layer as an input, register it, or detach it"
            )
        fz = unwrapped(fz)


class _PureTransform(torch.autograd.Function):
    """``shown`` in value; its backward passes ``transform(vjp, v)`` on to the map at ``z``.

    Nothing is kept but the tensors, so the backward pass evaluates the map once more.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(shown: Tensor, f: Any, transform: Any, z: Tensor, *tensors: Tensor) -> Tensor:
        return shown.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, ctx.pure, ctx.transform, *tensors = inputs
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> tuple[Tensor | None, ...]:
        z, *tensors = ctx.saved_tensors
        call, wanted = _of_floats(ctx.pure, tensors)
        fz, pull, *_ = torch.func.vjp(call, z, *wanted)
        u = ctx.transform(lambda u: pull(u.to(fz.dtype))[0], v)
        found = pull(u.to(fz.dtype))[1:]
        if not torch.compiler.is_compiling():  # a compiled graph has no second derivatives anyway
            found = tuple(map(_Last.apply, found))
        into = iter(found)
        gradients = [next(into) if t.is_floating_point() else None for t in tensors]
        return None, None, None, None, *gradients


class _TwoWayTransform(_PureTransform):
    """With forward mode, which torch.compile does not take of a custom function."""

    @staticmethod
    def jvp(ctx: Any, shown: Any, pure: Any, transform: Any, z: Any, *tangents: Any) -> Tensor:
        z, *tensors = ctx.saved_tensors
        call, wanted = _of_floats(ctx.pure, tensors)
        pairs = zip(tensors, tangents, strict=True)
        into = tuple(tangent for t, tangent in pairs if t.is_floating_point())
        start: Tensor = torch.func.jvp(lambda *given: call(z, *given), tuple(wanted), into)[1]

        def push(u: Tensor) -> Tensor:
            product: Tensor = torch.func.jvp(lambda z: call(z, *wanted), (z,), (u,))[1]
            return product.to(u.dtype)

        result: Tensor = _Last.apply(ctx.transform(push, start.to(z.dtype)))
        return result


class _Last(torch.autograd.Function):
    """A first derivative, which has none itself."""

    generate_vmap_rule = True

    @staticmethod
    def forward(derivative: Tensor) -> Tensor:
        return derivative.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        return

    @staticmethod
    def backward(ctx: Any, *_: Any) -> NoReturn:
        raise RuntimeError(NO_DERIVATIVE)

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> NoReturn:
        raise RuntimeError(NO_DERIVATIVE)


def _of_floats(
    pure: Callable[..., Tensor], tensors: list[Tensor]
) -> tuple[Callable[..., Tensor], list[Tensor]]:
    """Return the map of z and of those tensors that have derivatives, and these."""

    def call(z: Tensor, *wanted: Tensor) -> Tensor:
        given = iter(wanted)
        return pure(z, *(next(given) if t.is_floating_point() else t for t in tensors))

    return call, [t for t in tensors if t.is_floating_point()]
