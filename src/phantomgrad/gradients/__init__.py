"""Gradient estimators: how an equilibrium is differentiated, apart from how it is found."""

from phantomgrad.gradients.base import GradientEstimator
from phantomgrad.gradients.bptt import BackpropThroughSolver
from phantomgrad.gradients.damping import AdaptiveDamping
from phantomgrad.gradients.implicit import AdjointError, AdjointWarning, ImplicitGradient
from phantomgrad.gradients.phantom import NeumannPhantomGradient, UnrolledPhantomGradient

__all__ = [
    "AdaptiveDamping",
    "AdjointError",
    "AdjointWarning",
    "BackpropThroughSolver",
    "GradientEstimator",
    "ImplicitGradient",
    "NeumannPhantomGradient",
    "UnrolledPhantomGradient",
]
