# %% [markdown]
# # Why does this solve not converge?
#
# Three questions, in this order: how does the residual go (its **trace**), can an undamped iteration
# converge at all (the **spectral radius** of the Jacobian), and what does the answer do to the
# gradient (its **agreement** with the exact one)?
#
# The map is the paper's synthetic one, `tanh(W (h + u))` with W of a given norm. The fourth is no
# contraction: its W has norm 2 and only negative eigenvalues, so that Picard's iteration oscillates.

# %%
import torch

from phantomgrad import (
    Anderson,
    Broyden,
    FixedPoint,
    NeumannPhantomGradient,
    UnrolledPhantomGradient,
    agreement,
    estimated_gradient,
    exact_gradient,
    spectral_radius,
)

NORMS = (0.5, 0.9, 0.99, 2.0)
SOLVERS = {"Picard": FixedPoint, "Anderson": Anderson, "Broyden": Broyden}


def symmetric_matrix(size, norm, generator):
    """A random symmetric matrix whose largest eigenvalue, in absolute value, is ``norm``."""
    a = torch.randn(size, size, generator=generator, dtype=torch.float64)
    return norm * (a + a.T) / max(torch.linalg.eigvalsh(a + a.T), key=abs)


def setting(norm: float):
    generator = torch.Generator().manual_seed(0)
    if norm < 1:
        w = symmetric_matrix(64, norm, generator)
    else:
        root = symmetric_matrix(64, norm**0.5, generator)
        w = -root @ root
    u = 0.3 * torch.randn(8, 64, generator=generator, dtype=torch.float64)
    u.requires_grad_()
    return lambda h: torch.tanh((h + u) @ w), u


# %% [markdown]
# ## The trace
#
# `record_trace=True` keeps the residual of every evaluation, for each sample.

# %%
import matplotlib.pyplot as plt

figure, axes = plt.subplots(1, len(NORMS), figsize=(9, 2.5), sharey=True, layout="constrained")
equilibria = {}
print("norm of W    " + "".join(f"{name:>12}" for name in SOLVERS))
for axis, norm in zip(axes, NORMS, strict=True):
    f, u = setting(norm)
    counts = []
    for name, method in SOLVERS.items():
        solution = method(max_evaluations=60, tol=1e-6, record_trace=True).solve(
            f, torch.zeros_like(u)
        )
        axis.semilogy(solution.trace.nanmean(1), label=name)
        share = solution.converged.double().mean().item()
        counts.append(f"{int(solution.evaluations.max())}" if share == 1 else f"{share:.0%} of 8")
        equilibria[norm] = solution.z
    print(f"{norm:<13}" + "".join(f"{count:>12}" for count in counts))
    axis.set(title=f"norm of W: {norm}", xlabel="evaluation")
axes[0].set_ylabel("residual")
axes[-1].legend()

# %% [markdown]
# A straight line that falls is a contraction: more budget helps, a faster method helps more. A curve
# that levels off or oscillates does not get better with a larger budget.
#
# ## The spectral radius
#
# At the equilibrium (found by Broyden's method) the undamped iteration converges if the radius
# is below 1. Damping by λ replaces every eigenvalue μ by λμ + 1 - λ: that helps if the large ones are
# negative or complex, and never if one is real and above 1.

# %%
for norm in NORMS:
    f, _ = setting(norm)
    z = equilibria[norm]
    radius = spectral_radius(f, z).max().item()
    damped = spectral_radius(lambda z, f=f: torch.lerp(z, f(z), 0.5), z).max().item()
    solution = FixedPoint(max_evaluations=60, tol=1e-6, damping=0.5).solve(f, torch.zeros_like(z))
    print(
        f"norm {norm:<5} radius {radius:.2f}, damped by 0.5: {damped:.2f}, "
        f"damped iteration converged for {int(solution.converged.sum())} of 8"
    )

# %% [markdown]
# ## The gradient
#
# The cosine to the exact gradient tells whether a cheaper one still points the right way. Where
# the radius is above 1, the undamped Neumann series diverges with k.

# %%
print(
    "norm of W   radius    "
    + "".join(f"{name:>16}" for name in ("one step", "NPG 10, 1.0", "UPG 5, 0.5"))
)
for norm in NORMS:
    f, u = setting(norm)
    z = equilibria[norm]
    v = torch.randn(z.shape, generator=torch.Generator().manual_seed(1), dtype=z.dtype)
    solver = Broyden(max_evaluations=200, tol=1e-10)
    exact = exact_gradient(f, z, v, [u], solver=solver, adjoint=solver)
    cosines = [
        agreement(estimated_gradient(f, z, v, estimator, [u]), exact.gradient).cosine
        for estimator in (
            UnrolledPhantomGradient(1, 1.0),
            NeumannPhantomGradient(10, 1.0),
            UnrolledPhantomGradient(5, 0.5),
        )
    ]
    assert exact.adjoint_residual.max() < 1e-6
    radius = spectral_radius(f, z).max().item()
    print(f"{norm:<12}{radius:<10.2f}" + "".join(f"{cosine:>16.3f}" for cosine in cosines))

# %% [markdown]
# So a radius of 1.99 is no obstacle by itself: with damping both the solve and the gradient are right.
#
# In a model of your own, `f, start = layer.close_over((x,), z0)` has the map `f` of the state alone,
# and `layer.last_solution` what the last solve needed.
