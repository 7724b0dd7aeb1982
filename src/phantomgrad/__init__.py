"""Implicit models in PyTorch: any fixed-point solver, any gradient estimator, any model.

Includes the phantom gradients of "On Training Implicit Models" (Geng et al., 2021).

To read the code, begin with ``deq.py``, the layer. It closes the cell over its inputs
(``closure.py``), finds the equilibrium (``solvers/base.py`` is the contract,
``solvers/iterative.py`` the loop, then one method a file) and attaches it to the graph
(``gradients/base.py``, then one idea a file; ``jacobian.py`` has their products). ``nn.py`` keeps
weights and masks during a pass, ``packing.py`` makes several states one, and ``context.py``,
``precision.py`` and ``compiled.py`` are where transforms, dtypes and compilers are met.
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
