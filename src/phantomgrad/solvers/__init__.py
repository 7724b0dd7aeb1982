"""Fixed-point solvers: small frozen dataclasses with one method, ``solve(f, z0)``."""

from phantomgrad.solvers.anderson import Anderson
from phantomgrad.solvers.base import Solution, Solver
from phantomgrad.solvers.broyden import Broyden
from phantomgrad.solvers.fixed_point import FixedPoint
from phantomgrad.solvers.iterative import IterativeSolver
from phantomgrad.solvers.maps import Map
from phantomgrad.solvers.steps import Steps

__all__ = [
    "Anderson",
    "Broyden",
    "FixedPoint",
    "IterativeSolver",
    "Map",
    "Solution",
    "Solver",
    "Steps",
]
