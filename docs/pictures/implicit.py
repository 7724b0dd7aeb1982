"""Draw implicit.svg of docs/index.md: python docs/pictures/implicit.py."""

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import torch

from phantomgrad import (
    Anderson,
    Broyden,
    FixedPoint,
    UnrolledPhantomGradient,
    agreement,
    estimated_gradient,
    exact_gradient,
)
from phantomgrad_suite.studies.synthetic import SyntheticCell

STEPS = (1, 2, 3, 5, 7, 10)


def main() -> None:
    """Draw the iteration in one dimension, residuals of solvers, and cosines of gradients."""
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "implicit", "font.size": 9})
    figure, axes = plt.subplots(1, 3, figsize=(9, 2.8), layout="constrained")
    iteration(axes[0])
    for norm, style in ((0.5, "--"), (0.9, "-")):
        f, u = synthetic(norm)
        if norm == 0.9:
            residuals(axes[1], f, u)
        cosines(axes[2], f, u, norm, style)
    axes[2].legend()
    figure.savefig(Path(__file__).with_suffix(".svg"), metadata={"Date": None})


def iteration(axis: plt.Axes) -> None:
    """The path of z <- tanh(0.8 z + 0.5) from 0."""
    z = torch.linspace(-0.1, 1.1, 100)
    axis.plot(z, torch.tanh(0.8 * z + 0.5), label="f(z, x)")
    axis.plot(z, z, color="grey", linewidth=0.8, label="z")
    path = [(0.0, 0.0)]
    for _ in range(8):
        state = path[-1][0]
        image = float(torch.tanh(torch.tensor(0.8 * state + 0.5)))
        path += [(state, image), (image, image)]
    axis.plot(*zip(*path, strict=True), linewidth=0.9, color="C3")
    axis.plot(*path[-1], "o", color="C3", markersize=4)
    axis.annotate("equilibrium z*", path[-1], (0.62, 0.35), arrowprops={"arrowstyle": "->"})
    axis.set(xlabel="z", title="z ← f(z, x)")
    axis.legend()


def synthetic(norm: float) -> tuple:
    """The map tanh(W (z + u)) with W of a given norm, and u."""
    generator = torch.Generator().manual_seed(0)
    cell = SyntheticCell(128, norm, generator=generator).double()
    u = torch.randn(16, 128, generator=generator, dtype=torch.float64).requires_grad_()
    return lambda z: cell(z, u), u


def residuals(axis: plt.Axes, f, u) -> None:
    """The mean residual of three solvers by evaluation."""
    for name, method in (("Picard", FixedPoint), ("Anderson", Anderson), ("Broyden", Broyden)):
        solver = method(max_evaluations=25, tol=0.0, record_trace=True)
        trace = solver.solve(f, torch.zeros_like(u)).trace
        axis.semilogy(range(1, 26), trace.mean(1), label=name)
    axis.set(xlabel="evaluations of f", title="relative residual", ylim=(1e-9, 2))
    axis.legend()


def cosines(axis: plt.Axes, f, u, norm: float, style: str) -> None:
    """The cosine of phantom gradients to the exact one, by k."""
    solver = Broyden(max_evaluations=100, tol=1e-10)
    v = torch.randn(u.shape, generator=torch.Generator().manual_seed(1), dtype=u.dtype)
    z = solver.solve(f, torch.zeros_like(u)).z
    exact = exact_gradient(f, z, v, [u], solver=solver, adjoint=solver).gradient
    for color, damping in (("C0", 1.0), ("C1", 0.5)):
        values = []
        for steps in STEPS:
            estimator = UnrolledPhantomGradient(steps, damping)
            values.append(agreement(estimated_gradient(f, z, v, estimator, [u]), exact).cosine)
        label = f"λ = {damping}, norm {norm}"
        axis.plot(STEPS, values, style, color=color, label=label, marker="o", markersize=2.5)
    axis.set(xlabel="steps k", title="cosine to the exact gradient")


if __name__ == "__main__":
    main()
