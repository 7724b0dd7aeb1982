"""The states on the way to an equilibrium, and a loss over them."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from phantomgrad.checks import check_choice, check_integers, check_list, check_number
from phantomgrad.solvers import Map, Reversible, Solution, Solver
from phantomgrad.solvers.maps import per_sample


class Trajectory:
    """A map that keeps the states reached after given numbers of its evaluations.

    Raises:
        ValueError: ``record_at`` does not hold increasing integers from 1, or ``solver``, which is
            passed only if autograd records it, is :class:`phantomgrad.Reversible`.
    """

    def __init__(self, f: Map, record_at: Sequence[int], solver: Solver | None = None) -> None:
        check_integers("record_at", record_at)
        if isinstance(solver, Reversible):
            raise ValueError(
                "record_at needs a solver whose steps autograd records one by one (FixedPoint, "
                "Steps), or a gradient other than BackpropThroughSolver, got Reversible"
            )
        self._f, self._at = f, tuple(record_at)
        if self._at != tuple(sorted({n for n in self._at if n > 0})):
            raise ValueError(f"record_at must hold increasing integers from 1 on, got {self._at}")
        self.integers: Tensor | None = getattr(f, "integers", None)
        self._calls = 0
        self._states: dict[int, Tensor] = {}

    def __call__(self, z: Tensor) -> Tensor:
        """Return ``f(z)``."""
        if self._calls in self._at:
            self._states[self._calls] = z.clone()  # a solver may use its memory again
        self._calls += 1
        return self._f(z)

    def states(self, solution: Solution) -> list[Tensor]:
        """Return the kept states, with those of ``solution`` where a sample had stopped."""
        z = solution.z
        # The last evaluation of a sample that diverged was not finite, and perhaps its state.
        last = per_sample(solution.evaluations - solution.diverged.long(), z)
        return [torch.where(last > n, self._states.get(n, z), z) for n in self._at]


def trajectory_loss(
    states: Sequence[Any],
    loss: Callable[[Any], Tensor],
    weights: Literal["exponential", "linear"] | Sequence[float] = "exponential",
    *,
    gamma: float | None = None,
    normalized: bool = True,
) -> Tensor:
    r"""Return the weighted sum of a loss over the states of a trajectory.

    .. math:: \sum_{k<n} w_k \mathcal{L}(z_k), \qquad
              w_k = \gamma^{n-1-k} \quad\text{or}\quad w_k = 1 - \gamma \frac{n-1-k}{n} ,

    so that the solution, which is the last state, has the largest weight.

    Args:
        states: what a :class:`phantomgrad.DEQ` returns with ``record_at``.
        loss: called with each state whose weight is not zero.
        weights: ``"exponential"``, ``"linear"``, or one number for each state.
        gamma: in [0, 1]; by default 0.8 for exponential weights and 0.9 for linear ones.
        normalized: divide the weights by their sum, so that the size of the loss does not depend
            on the number of states.

    Raises:
        ValueError: weights that are not known, not finite, negative, all zero, or not one for each
            state; ``gamma`` with a list of them.
    """
    n = len(check_list("states", states))
    if not n:
        raise ValueError("states must hold at least one state, got none")
    if isinstance(weights, str):
        check_choice("weights", weights, ("exponential", "linear"))
        gamma = {"exponential": 0.8, "linear": 0.9}[weights] if gamma is None else gamma
        if not 0 <= gamma <= 1:
            raise ValueError(f"gamma must lie in [0, 1], got {gamma}")
        steps = range(n - 1, -1, -1)  # to the solution
        weights = [gamma**k if weights == "exponential" else 1 - gamma * k / n for k in steps]
    elif gamma is not None:
        raise ValueError(f"gamma is for named weights, got {gamma} with a list")
    for weight in check_list("weights", weights):
        check_number("each of weights", weight)
    total = sum(weights)
    if len(weights) != n or min(weights, default=0) < 0 or not total > 0:
        raise ValueError(
            f"weights must hold {n} numbers, none negative and not all zero, got {[*weights]}"
        )
    pairs = zip(weights, states, strict=True)
    scale = total if normalized else 1.0
    return torch.stack([weight / scale * loss(z) for weight, z in pairs if weight]).sum()
