"""Fixed-point solvers: small frozen dataclasses with one method, ``solve(f, z0)``."""

from phantomgrad.solvers.anderson import Anderson
from phantomgrad.solvers.base import Inverse, LinearSolver, Solution, Solver
from phantomgrad.solvers.broyden import Broyden
from phantomgrad.solvers.fixed_point import FixedPoint
from phantomgrad.solvers.gmres import GMRES
from phantomgrad.solvers.iterative import Iteration, IterativeSolver
from phantomgrad.solvers.maps import Map
from phantomgrad.solvers.reversible import Reversible
from phantomgrad.solvers.steps import Steps

__all__ = [
    "GMRES",
    "Anderson",
    "Broyden",
    "FixedPoint",
    "Inverse",
    "Iteration",
    "IterativeSolver",
    "LinearSolver",
    "Map",
    "Reversible",
    "Solution",
    "Solver",
    "Steps",
]
