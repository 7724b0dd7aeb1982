"""Implicit models in PyTorch: any fixed-point solver, any gradient estimator, any model.

Includes the phantom gradients of "On Training Implicit Models" (Geng et al., 2021).
"""

from importlib import metadata

from phantomgrad.deq import DEQ, Equilibrium
from phantomgrad.diagnostics import (
    Agreement,
    ExactGradient,
    agreement,
    estimated_gradient,
    exact_gradient,
)
from phantomgrad.gradients import (
    AdaptiveDamping,
    AdjointError,
    AdjointWarning,
    BackpropThroughSolver,
    GradientEstimator,
    ImplicitGradient,
    NeumannPhantomGradient,
    UnrolledPhantomGradient,
)
from phantomgrad.jacobian import jacobian_regularizer, spectral_radius, spectral_regularizer
from phantomgrad.solvers import (
    GMRES,
    Anderson,
    Broyden,
    FixedPoint,
    LinearSolver,
    Reversible,
    Solution,
    Solver,
    Steps,
)

try:
    __version__ = metadata.version("phantomgrad")
except metadata.PackageNotFoundError:  # not installed, only on the path
    __version__ = "0.1.0.dev0"

__all__ = [
    "DEQ",
    "GMRES",
    "AdaptiveDamping",
    "AdjointError",
    "AdjointWarning",
    "Agreement",
    "Anderson",
    "BackpropThroughSolver",
    "Broyden",
    "Equilibrium",
    "ExactGradient",
    "FixedPoint",
    "GradientEstimator",
    "ImplicitGradient",
    "LinearSolver",
    "NeumannPhantomGradient",
    "Reversible",
    "Solution",
    "Solver",
    "Steps",
    "UnrolledPhantomGradient",
    "agreement",
    "estimated_gradient",
    "exact_gradient",
    "jacobian_regularizer",
    "spectral_radius",
    "spectral_regularizer",
]
