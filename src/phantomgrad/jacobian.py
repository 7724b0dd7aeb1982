"""The Jacobian of a map: products with it, its spectral radius, its regularisation."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from phantomgrad.checks import check_at_least
from phantomgrad.solvers import Map
from phantomgrad.solvers.base import evaluate, flat, per_sample

_LINEARIZING = ContextVar("_LINEARIZING", default=False)


@contextmanager
def linearizing() -> Iterator[None]:
    """Inside, cells are evaluated eagerly.

    A compiled backward pass has no second derivatives, and would compute the gradients of all
    weights at every vector-Jacobian product.
    """
    token = _LINEARIZING.set(True)
    try:
        yield
    finally:
        _LINEARIZING.reset(token)


def is_linearizing() -> bool:
    """Return whether an evaluation is for derivatives that a compiled one would not have."""
    return _LINEARIZING.get()


class Linearization:
    r"""``f`` at ``z``, and :math:`J = \partial f / \partial z` there as two linear maps.

    ``f`` is evaluated once, at construction. ``value`` is ``f(z)``, with a gradient to the
    parameters and inputs that ``f`` uses. Arguments and results of the products have the shape of
    ``z``, ``(B, *state)``.
    """

    def __init__(self, f: Map, z: Tensor) -> None:
        self._z = recordable(z)
        # A view, since hooks of counters of operations take no leaf.
        with torch.enable_grad(), linearizing():
            self.value = evaluate(f, self._z.view_as(self._z))
        self._transposed: tuple[Tensor, Tensor] | None = None

    def vjp(self, u: Tensor) -> Tensor:
        """Return :math:`J^T u`."""
        return self.vjps(u)[0]

    def vjps(self, u: Tensor, *wanted: Tensor) -> tuple[Tensor, ...]:
        r"""Return :math:`J^T u`, then the same with J with respect to each of ``wanted``."""
        return pulled_back(self.value, (self._z, *wanted), u)

    def jvp(self, u: Tensor) -> Tensor:
        r"""Return :math:`J u`, as the derivative of :math:`J^\top w`, which is linear in w."""
        if self._transposed is None:
            w = torch.zeros_like(self.value, requires_grad=True)
            with torch.enable_grad():
                (product,) = pulled_back(self.value, [self._z], w, create_graph=True)
            self._transposed = w, product
        w, product = self._transposed
        return pulled_back(product, [w], u)[0]


def spectral_radius(
    f: Map, z: Tensor, *, iterations: int = 100, generator: torch.Generator | None = None
) -> Tensor:
    r"""Estimate the spectral radius of :math:`J = \partial f / \partial z`, per sample, ``(B,)``.

    Power iteration with :math:`J^\top`, whose eigenvalues are those of J, from a Gaussian start.
    The estimate is the geometric mean of :math:`\|J^\top v\| / \|v\|` over the last half of the
    iterations, which also works for complex eigenvalues and for several of the largest modulus.
    With r the ratio of the second largest modulus to the largest, the error decays like
    ``r^(iterations/2)``, for a normal J like ``r^iterations``; for r = 1 like ``1/iterations`` or
    faster.

    Args:
        f: the map, differentiable; samples must not interact.
        z: where J is taken, ``(B, *state)``.
        iterations: number of vector-Jacobian products; ``f`` is evaluated once.
        generator: of the start, on the device of ``z``.
    """
    check_at_least("iterations", iterations, 1)
    at = Linearization(f, z)
    v = _normalized(torch.empty_like(z).normal_(generator=generator))[0]
    logs = []
    for _ in range(iterations):
        v, size = _normalized(at.vjp(v))
        logs.append(size.log())
    return torch.stack(logs[iterations // 2 :]).mean(dim=0).exp()


def jacobian_regularizer(
    f: Map, z: Tensor, *, samples: int = 1, generator: torch.Generator | None = None
) -> Tensor:
    r"""Hutchinson estimate of :math:`\|J\|_F^2 / N`, a scalar to add to a loss (Bai et al., 2021).

    .. math:: \frac{1}{M} \sum_{m=1}^{M} \frac{\|v_m^\top J\|^2}{N}, \qquad v_m \sim
              \mathcal{N}(0, I), \quad N \text{ the number of entries of } z

    M is the number of ``samples``. The gradient reaches the parameters and inputs of ``f``, and
    also what ``z`` depends on if ``z`` has a graph: pass ``z.detach()`` for the usual form. Under
    ``torch.no_grad`` the result has no graph. Half-precision entries are summed in float32.
    """
    check_at_least("samples", samples, 1)
    recorded = torch.is_grad_enabled()
    z = z if recorded and z.requires_grad else recordable(z)
    with torch.enable_grad():
        with linearizing():
            fz, squares = evaluate(f, z), list[Tensor]()
        for _ in range(samples):
            v = torch.empty_like(fz).normal_(generator=generator)
            (product,) = pulled_back(fz, [z], v, create_graph=True)
            product = product.to(torch.promote_types(z.dtype, torch.float32))
            squares.append(product.square().sum() / z.numel())
        mean = torch.stack(squares).mean()
    return mean if recorded else mean.detach()


def spectral_regularizer(
    f: Map, z: Tensor, *, iterations: int = 4, generator: torch.Generator | None = None
) -> Tensor:
    r"""Estimate the mean spectral radius of :math:`J`, a scalar to add to a loss.

    .. math:: \frac{1}{B} \sum_{b=1}^{B} \|J_b^\top v_b\|, \qquad
              v_b \leftarrow J_b^\top v_b / \|J_b^\top v_b\| \quad \text{iterations times}

    from Gaussian :math:`v_b`, as in :func:`spectral_radius`. The gradient takes v as a constant,
    which is exact where J is normal. It reaches the parameters and inputs of ``f``. Under
    ``torch.no_grad`` the result has no graph.
    """
    check_at_least("iterations", iterations, 1)
    recorded = torch.is_grad_enabled()
    z = recordable(z)
    with torch.enable_grad():
        with linearizing():
            fz = evaluate(f, z)
        v = _normalized(torch.empty_like(z).normal_(generator=generator))[0]
        for _ in range(iterations):
            v = _normalized(pulled_back(fz, [z], v)[0])[0]
        (product,) = pulled_back(fz, [z], v, create_graph=True)
        mean = _normalized(product)[1].mean()
    return mean if recorded else mean.detach()


def _normalized(v: Tensor) -> tuple[Tensor, Tensor]:
    size = torch.linalg.vector_norm(flat(v), dim=1)
    scale = per_sample(size.clamp_min(torch.finfo(v.dtype).tiny), v)
    return v / scale, size


def pulled_back(
    output: Tensor, wanted: Sequence[Tensor], u: Tensor, create_graph: bool = False
) -> tuple[Tensor, ...]:
    """Return ``J^T u`` with J the derivative of ``output`` with respect to each of ``wanted``.

    Tensors that ``output`` does not depend on get zeros.
    """
    if not wanted or not output.requires_grad:
        return tuple(torch.zeros_like(t) for t in wanted)
    return torch.autograd.grad(
        output,
        list(wanted),
        u.to(output.dtype),
        retain_graph=True,  # several calls may share the graph of one weight
        create_graph=create_graph,
        allow_unused=True,
        materialize_grads=True,
    )


def recordable(z: Tensor) -> Tensor:
    """Return ``z`` as a leaf that requires a gradient; raise where autograd cannot be called."""
    if torch.compiler.is_compiling():
        raise RuntimeError(NO_JACOBIAN)
    if torch.is_inference_mode_enabled():
        raise RuntimeError(
            "the Jacobian of a map cannot be taken under torch.inference_mode(): use "
            "torch.no_grad() instead (inference_mode=False of a Lightning Trainer)"
        )
    try:
        return z.detach().requires_grad_()
    except RuntimeError as error:  # torch refuses this in a transform
        raise RuntimeError(NO_JACOBIAN) from error


NO_JACOBIAN = (
    "the Jacobian of a map cannot be taken under fullgraph=True or in a transform of torch.func: "
    "use UnrolledPhantomGradient with a number as damping, or BackpropThroughSolver, without a "
    "penalty on the Jacobian"
)
