"""torchdeq 0.1.0, the peer, with the interfaces of this library. No other module imports it."""

import importlib.metadata
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from phantomgrad.deq import DEQ
from phantomgrad.gradients import GradientEstimator, ImplicitGradient, UnrolledPhantomGradient
from phantomgrad.nn import entered, one_pass
from phantomgrad.solvers import (
    Anderson,
    Broyden,
    FixedPoint,
    IterativeSolver,
    LinearSolver,
    Map,
    Solver,
)
from phantomgrad_suite.runs.errors import UserError

MISSING = "torchdeq is not installed: pip install -e '.[bench]' in the checkout"
_NAMES = {FixedPoint: "fixed_point_iter", Anderson: "anderson", Broyden: "broyden"}


def version() -> str | None:
    """Return the version of torchdeq, or ``None`` if it is not installed."""
    try:
        return importlib.metadata.version("torchdeq")
    except importlib.metadata.PackageNotFoundError:
        return None


@dataclass(frozen=True)
class PeerSolver:
    """The counterpart of ``solver``, with as many evaluations of ``f``."""

    solver: Solver

    def solve(self, f: Map, z0: Tensor) -> Tensor:
        from torchdeq.solver import get_solver

        options = _solver_options(self.solver, "")
        if isinstance(self.solver, Anderson):
            options["m"] = self.solver.memory
        z: Tensor = get_solver(options.pop("solver"))(f, z0, **options)[0]
        return z


class PeerDEQ(nn.Module):
    """The counterpart of one of our layers, on the same cell, called alike."""

    def __init__(self, layer: DEQ) -> None:
        super().__init__()
        self.cell = layer.cell
        self._close_over = layer.close_over
        self._deq = get_layer(layer.solver, layer.gradient)

    def forward(self, *inputs: Any, z0: Any, solver: None = None) -> tuple[Any, None]:
        with one_pass(self.cell):
            f, start = self._close_over(inputs, z0)

            def repeated(z: Tensor) -> Tensor:
                with entered(f.held):  # torchdeq evaluates f in its backward pass, too
                    return f(z)

            z = self._deq(repeated, start)[0][-1]
        return f.shown(z), None


def use_peer(model: nn.Module) -> None:
    """Replace every layer of ``model`` by its counterpart."""
    for parent in list(model.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, DEQ):
                setattr(parent, name, PeerDEQ(layer))


def get_layer(solver: Solver, gradient: GradientEstimator) -> nn.Module:
    """Return torchdeq's layer, called with a map and a start, for our solver and gradient.

    Raises:
        UserError: torchdeq has no counterpart of the solver or the gradient.
    """
    from torchdeq import get_deq

    options = _solver_options(solver, "f_")
    match gradient:
        case ImplicitGradient(order=1, preconditioner=None):
            options |= {"ift": True, **_solver_options(gradient.solver, "b_")}
        case UnrolledPhantomGradient(state=None):
            options |= {"grad": gradient.steps, "tau": gradient.current_damping}
        case _:
            raise UserError(f"torchdeq has no counterpart of {gradient}")
    built: nn.Module = get_deq(**options)
    return built


def _solver_options(solver: LinearSolver, prefix: str) -> dict[str, Any]:
    if not isinstance(solver, IterativeSolver) or type(solver) not in _NAMES:
        raise UserError(f"torchdeq has no counterpart of {solver}")
    options = {
        "solver": _NAMES[type(solver)],
        # The peer's Broyden does not count the evaluation at the start.
        "max_iter": solver.max_evaluations - isinstance(solver, Broyden),
        "tol": solver.tol,
        "stop_mode": "rel",
    }
    return {prefix + name: value for name, value in options.items()}
