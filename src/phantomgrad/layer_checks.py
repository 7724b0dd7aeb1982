"""What a layer refuses: parts that do not go together, states that a solver cannot take."""

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from phantomgrad.gradients import GradientEstimator
from phantomgrad.nn import Closure
from phantomgrad.solvers import LinearSolver, Solver
from phantomgrad.solvers.context import differentiating, traced


def check_cell(cell: nn.Module) -> None:
    """Raise unless ``cell`` is a module that takes its state first."""
    if not isinstance(cell, nn.Module):
        raise TypeError(f"cell must be a torch.nn.Module, got {_kind(cell)}")
    if isinstance(cell, nn.RNNCellBase):
        raise TypeError(f"cell must take its state first, got {_kind(cell)}: wrap it in a module")


def check_parts(solver: Solver, gradient: GradientEstimator, role: str = "solver") -> None:
    """Raise unless a layer can have these parts."""
    if isinstance(solver, LinearSolver) and not isinstance(solver, Solver):
        raise TypeError(
            f"{role} must find an equilibrium, as Anderson(), Broyden() and FixedPoint() do, got "
            f"{_kind(solver)}, which solves linear equations only: it is for adjoints, "
            f"ImplicitGradient(solver={_kind(solver)}())"
        )
    for part, kind, name in ((solver, Solver, role), (gradient, GradientEstimator, "gradient")):
        if not isinstance(part, kind):
            raise TypeError(
                f"{name} must be a phantomgrad.{kind.__name__} (Broyden() is a solver, "
                f"ImplicitGradient() a gradient), got {_kind(part)}"
            )
    gradient.adapt_solver(solver)


def check_state(f: Closure, z0: Any, solver: Solver, gradient: GradientEstimator) -> None:
    """Raise if the solver cannot take a state; warn if its start gets none of its gradient."""
    norms = (getattr(part, "norm", None) for part in (solver, getattr(gradient, "solver", None)))
    if f.padding is not None and "rms" in norms:
        raise ValueError(
            "norm must be 'l2' or 'max' with a state_mask, got 'rms', a mean over padding as well"
        )
    if f.integers is not None and not solver.fixed_length:
        raise ValueError(
            "integers in the state, such as a counter of the steps, have no equilibrium and need "
            f"the solver Steps, got {type(solver).__name__}"
        )
    if gradient.needs_recorded_solve or traced() or not differentiating():
        return
    if any(isinstance(t, Tensor) and t.requires_grad for t in tree_leaves(z0)):
        warnings.warn(
            f"z0 requires a gradient, but gets none with {type(gradient).__name__}: detach it, or "
            "learn the start with BackpropThroughSolver",
            stacklevel=6,  # the call of the layer
        )


def default_start(inputs: Sequence[Any]) -> Tensor:
    """Return zeros like the first input."""
    if not inputs or not isinstance(inputs[0], Tensor):
        got = _kind(inputs[0]) if inputs else "none"
        raise ValueError(f"z0 is needed if the first input is not a tensor, got {got}")
    return torch.zeros_like(inputs[0])


def _kind(value: object) -> str:
    """Return what ``value`` is, for an error."""
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
