"""Solvers, small frozen dataclasses: ``solve(f, z0)`` for fixed points, GMRES for adjoints."""

from phantomgrad.solvers.anderson import Anderson
from phantomgrad.solvers.base import Inverse, LinearSolver, Map, Solution, Solver
from phantomgrad.solvers.broyden import Broyden
from phantomgrad.solvers.fixed_point import (
    FixedPoint,
    LogNormalPoissonDepth,
    Steps,
)
from phantomgrad.solvers.gmres import GMRES
from phantomgrad.solvers.iterative import Advance, IterativeSolver
from phantomgrad.solvers.reversible import Reversible

__all__ = [
    "GMRES",
    "Advance",
    "Anderson",
    "Broyden",
    "FixedPoint",
    "Inverse",
    "IterativeSolver",
    "LinearSolver",
    "LogNormalPoissonDepth",
    "Map",
    "Reversible",
    "Solution",
    "Solver",
    "Steps",
]
