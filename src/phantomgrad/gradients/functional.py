"""Gradient estimates in the transforms of ``torch.func`` and in compiled graphs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.autograd import forward_ad

from phantomgrad.solvers import Map
from phantomgrad.solvers.context import alive, has_derivative, tangents, transforms

NO_DERIVATIVE = (
    "this gradient estimate has no derivative of its own (create_graph=True, or one transform of "
    "torch.func within another): "
    "use ImplicitGradient(order=2) for exact second derivatives, or "
    "UnrolledPhantomGradient, which is the gradient of the steps it unrolls"
)


@dataclass(frozen=True)
class PureMap:
    """A map ``f`` and the tensors that it closes over: ``f(z) = pure(z, *tensors)``.

    A custom autograd function needs them as arguments: in transforms and compiled graphs, nothing
    else receives a derivative.
    """

    f: Map
    pure: Callable[..., Tensor]
    tensors: tuple[Tensor, ...]
    nested: bool = False  # whether an equilibrium layer is a part of it

    def __call__(self, z: Tensor) -> Tensor:
        """Return ``f(z)``."""
        return self.f(z)

    @property
    def integers(self) -> Tensor | None:
        """Where a packed state has integers."""
        return getattr(self.f, "integers", None)


def attach_purely(f: PureMap, z_star: Tensor, transform: Any, value: Tensor) -> Tensor:
    """Return ``value``, whose cotangent v reaches ``f(z_star)`` as ``transform(vjp, v)``."""
    if f.nested and torch.compiler.is_compiling():
        raise RuntimeError(
            "gradient must be UnrolledPhantomGradient or BackpropThroughSolver in one graph "
            "(fullgraph=True) for a layer whose cell contains another DEQ: torch cannot trace that "
            "in the backward pass of other estimators"
        )
    z = z_star.detach()
    _refuse_other_tensors(f, z)
    if forward_ad._current_level >= 0 and not transforms():
        raise RuntimeError(
            "this gradient estimate has no forward mode in torch.autograd.forward_ad: "
            "use torch.func.jvp"
        )
    kind = _PureTransform if torch.compiler.is_compiling() else _TwoWayTransform
    out: Tensor = kind.apply(value.detach(), f.pure, transform, z, *f.tensors)
    return out


def _refuse_other_tensors(f: PureMap, z: Tensor) -> None:
    """Raise if ``f`` depends on a differentiable tensor that is not one of its ``tensors``.

    This takes an evaluation, which a compiler removes again, since its result is not used.
    """
    if has_derivative(f.pure(z, *(t.detach() for t in f.tensors))):
        raise ValueError(
            "the cell depends on a tensor that is not one of its parameters, buffers or "
            "inputs, and would get no gradient in one graph (fullgraph=True) or in a transform "
            "of torch.func: pass it to the layer as an input, register it, or detach it"
        )


class _PureTransform(torch.autograd.Function):
    """``value``, whose cotangent v reaches the map at z as ``transform(vjp, v)``.

    Only the tensors are saved, so the backward pass evaluates the map once more.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(value: Tensor, pure: Any, transform: Any, z: Tensor, *tensors: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, ctx.pure, ctx.transform, *tensors = inputs
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> tuple[Tensor | None, ...]:
        z, *tensors = map(alive, ctx.saved_tensors)
        call, wanted = _of_differentiable(ctx.pure, tensors)
        fz, pull, *_ = torch.func.vjp(call, z, *wanted)
        with torch.no_grad(), tangents(False):  # of the adjoint solve, only the result counts
            u = ctx.transform(lambda u: pull(u.to(fz.dtype))[0], v)
        found = pull(u.to(fz.dtype))[1:]
        if not torch.compiler.is_compiling():  # a compiled graph has no second derivatives anyway
            found = tuple(_LastDerivative.apply(g, v, *tensors) for g in found)
        remaining = iter(found)
        gradients = [next(remaining) if _differentiable(t) else None for t in tensors]
        return None, None, None, None, *gradients


class _TwoWayTransform(_PureTransform):
    """The same with a forward mode, which torch.compile does not allow in a custom function."""

    @staticmethod
    def jvp(ctx: Any, value: Any, pure: Any, transform: Any, z: Any, *given: Any) -> Tensor:
        z, *tensors = ctx.saved_tensors
        call, wanted = _of_differentiable(ctx.pure, tensors)
        pairs = zip(tensors, given, strict=True)
        moved = tuple(tangent for t, tangent in pairs if _differentiable(t))
        start: Tensor = torch.func.jvp(lambda *wanted: call(z, *wanted), tuple(wanted), moved)[1]

        def push(u: Tensor) -> Tensor:
            product: Tensor = torch.func.jvp(lambda z: call(z, *wanted), (z,), (u,))[1]
            return product.to(u.dtype)

        with torch.no_grad(), tangents(False):
            solved = ctx.transform(push, start.to(z.dtype))
        with tangents(True):  # torch has switched them off here, and would not see those of moved
            solved = _LastDerivative.apply(solved, *moved)
        result: Tensor = _LastDerivative.apply(solved, start, *tensors)
        return result


class _LastDerivative(torch.autograd.Function):
    """Its first argument, a derivative of the others that must not be differentiated again."""

    generate_vmap_rule = True

    @staticmethod
    def forward(derivative: Tensor, *others: Tensor) -> Tensor:
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


def _differentiable(t: Tensor) -> bool:
    return t.is_floating_point() or t.is_complex()


def _of_differentiable(
    pure: Callable[..., Tensor], tensors: list[Tensor]
) -> tuple[Callable[..., Tensor], list[Tensor]]:
    """Return the map as a function of z and the tensors that can have derivatives, and these."""

    def call(z: Tensor, *wanted: Tensor) -> Tensor:
        given = iter(wanted)
        return pure(z, *(next(given) if _differentiable(t) else t for t in tensors))

    return call, [t for t in tensors if _differentiable(t)]
