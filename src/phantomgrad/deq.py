"""The layer: an equilibrium found by a solver and differentiated by an estimator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from phantomgrad.damping import DampingTracker
from phantomgrad.gradients import GradientEstimator
from phantomgrad.nn import CompiledCalls, Packing, shared_masks, shared_parametrizations
from phantomgrad.nn.changing import warn_of_changing
from phantomgrad.solvers import Map, Solution, Solver

Penalty = Callable[[Map, Tensor, Tensor], Tensor]
"""From the map, its equilibrium as the solver found it, and the same on the graph, a scalar.

For one, ``layer.penalty = lambda f, z, attached: jacobian_regularizer(f, z.detach())``, and in the
loss ``weight * layer.last_penalty``.
"""


class DEQ(nn.Module):
    r"""The equilibrium of a cell, ``z* = cell(z*, *inputs)``.

    ``solver`` finds it and records no graph; ``gradient`` puts it on the graph and so decides what
    stands for :math:`(I - \partial f / \partial z)^{-1}` in the backward pass (Bai et al., 2019;
    Geng et al., 2021). Whether there is a graph depends on the autograd mode alone, never on
    ``training``: an evaluation-mode model can be fine-tuned or differentiated by its input.

    Parametrized weights (weight norm, spectral norm) are computed once per forward, and masks of
    :class:`phantomgrad.nn.VariationalDropout` drawn once; solve, gradient and adjoint share them.
    An :class:`phantomgrad.AdaptiveDamping` is measured in training mode alone, and always used.

    ``solver`` and ``gradient`` may be set to others at any time. Of torch's function transforms
    ``torch.func.grad`` works with :class:`phantomgrad.UnrolledPhantomGradient` alone: the other
    gradients take vector-Jacobian products by autograd, which it does not let them.

    Args:
        cell: the map ``f``, called as ``cell(z, *inputs, **keywords)``; it returns what it is given
            for ``z``, a tensor ``(B, *state)`` or a tuple of such, and leaves that as it is. A
            :class:`UserWarning` says so where it holds torch's own dropout or batch normalisation
            with running statistics: such a map changes from one evaluation to the next.
        solver: how the equilibrium is found.
        gradient: how a loss on it reaches the inputs and the parameters of ``cell``.

    Raises:
        TypeError: an argument is of another kind.
        ValueError: the gradient needs a solver that autograd can record, and this one is not.
    """

    def __init__(self, cell: nn.Module, solver: Solver, gradient: GradientEstimator) -> None:
        super().__init__()
        if not isinstance(cell, nn.Module):
            raise TypeError(f"cell must be a torch.nn.Module, got {_kind(cell)}")
        warn_of_changing(cell)
        self.cell = cell
        self.damping_tracker: DampingTracker | None = None
        """What the damping of ``gradient`` follows, where it follows the model."""
        self._use(solver, gradient)
        self._compiled: CompiledCalls | None = None
        self.last_solution: Solution | None = None
        """What the solver found in the last forward pass, without ``z``; for logs."""
        self.last_adjoint: Solution | None = None
        """The same of the adjoint solver in the last backward pass, where there is one."""
        self.penalty: Penalty | None = None
        """Called in every pass that is recorded, with its map, weights and masks; for training."""
        self.last_penalty: Tensor | None = None
        """What it returned in the last pass, on the graph; whoever takes it leaves ``None``."""

    @property
    def solver(self) -> Solver:
        """How the equilibrium is found."""
        return self._solver

    @solver.setter
    def solver(self, solver: Solver) -> None:
        self._use(solver, self._gradient)

    @property
    def gradient(self) -> GradientEstimator:
        """How a loss on the equilibrium reaches the inputs and the parameters of the cell."""
        return self._gradient

    @gradient.setter
    def gradient(self, gradient: GradientEstimator) -> None:
        self._use(self._solver, gradient)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("solver", "gradient"):  # torch would take one that is a module past its setter
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    def _use(self, solver: Solver, gradient: GradientEstimator) -> None:
        """Take these two, if they go together."""
        for name, part, method in (("solver", solver, "solve"), ("gradient", gradient, "attach")):
            if isinstance(part, type) or not hasattr(part, method):
                raise TypeError(
                    f"{name} must be an object with a method {method} (Broyden() is a solver, "
                    f"ImplicitGradient() a gradient), got {_kind(part)}"
                )
        if gradient.needs_recorded_solve and not solver.differentiable:
            raise ValueError(
                f"{type(gradient).__name__} needs a solver that autograd can record "
                f"(FixedPoint), got {type(solver).__name__}"
            )
        self._solver, self._gradient = solver, gradient
        adaptation, tracker = gradient.adaptation, self.damping_tracker
        if adaptation is None:
            self.damping_tracker = None
        elif tracker is None or tracker.settings != adaptation:
            self.damping_tracker = DampingTracker(adaptation)

    def forward(
        self, *inputs: Any, z0: Tensor | Sequence[Tensor] | None = None, **keywords: Any
    ) -> tuple[Any, Solution]:
        """Return the equilibrium, shaped like ``z0``, and what the solver says of it.

        Args:
            inputs: passed to the cell behind the state.
            z0: where the solver starts, a tensor ``(B, *state)`` or a sequence of them; by
                default zeros like the first input. It carries no gradient.
            keywords: passed to the cell, a mask for one.

        Returns:
            The equilibrium on the graph, and the :class:`Solution`, whose ``z`` is off the graph
            and, of several states, packed to ``(B, D)``. Without a graph they share their memory.

        Raises:
            ValueError: there is neither ``z0`` nor a first input to take the shape from, or the
                cell does not keep the shape, the dtypes or the device of the state.
            TypeError: ``z0``, or what the cell returns, is no tensor or sequence of tensors.
        """
        f, start, packing = self.close_over(inputs, self._start(inputs, z0), keywords)
        with shared_masks(self.cell), shared_parametrizations(self.cell):
            with torch.set_grad_enabled(
                self.gradient.needs_recorded_solve and torch.is_grad_enabled()
            ):
                solution = self.solver.solve(f, start)
            self.last_solution, z = _without_state(solution), solution.z
            if torch.is_grad_enabled():
                z = self._estimator(f, z).attach(f, z, self._keep_adjoint)
                if self.penalty is not None:
                    self.last_penalty = self.penalty(f, solution.z, z)
        return z if packing is None else packing.unpack(z), solution

    def compile_solve(self, **options: Any) -> None:
        """Compile the evaluations of the cell that no graph records, those of the solver.

        What is recorded, for the gradient or by ``BackpropThroughSolver``, runs as before, with all
        its derivatives. Copies and pickles of the layer are not compiled.

        Args:
            options: of ``torch.compile``: ``mode``, ``backend``, ``dynamic`` ...
        """
        self._compiled = CompiledCalls(self.cell, **options)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for copies and pickles: no compiled code, nothing on a graph."""
        state = super().__getstate__()  # type: ignore[no-untyped-call]
        return {**state, "_compiled": None, "last_penalty": None}

    def close_over(
        self,
        inputs: tuple[Any, ...],
        z0: Tensor | Sequence[Tensor],
        keywords: Mapping[str, Any] = MappingProxyType({}),
    ) -> tuple[Map, Tensor, Packing | None]:
        """Return the map of the state alone, ``z0`` as one tensor, and how to take that apart.

        The map, its solver and its gradient know one tensor, ``(B, *state)``. Several states are
        joined to ``(B, D)``; of a single tensor there is nothing to take apart (``None``).

        Args:
            inputs: passed to the cell behind the state.
            z0: a tensor ``(B, *state)`` or a sequence of them, off the graph in what is returned.
            keywords: passed to the cell.

        Raises:
            ValueError: a sequence is empty, or its tensors do not share batch size and dtype.
            TypeError: ``z0`` is neither.
        """
        call = self._compiled or self.cell
        if isinstance(z0, Tensor):
            frozen = not torch.compiler.is_compiling() and z0.is_inference()
            start = z0.clone() if frozen else z0  # autograd takes no inference tensor
            return lambda z: call(z, *inputs, **keywords), start.detach(), None
        packing = Packing.of(z0)

        def f(packed: Tensor) -> Tensor:
            return packing.pack(call(packing.unpack(packed), *inputs, **keywords))

        return f, packing.pack(z0).detach(), packing

    def _estimator(self, f: Map, z: Tensor) -> GradientEstimator:
        tracker = self.damping_tracker
        if tracker is None:
            return self.gradient
        if self.training:
            tracker.follow(f, z)
        return self.gradient.damped(tracker.damping)

    def _start(self, inputs: tuple[Any, ...], z0: Any) -> Any:
        if z0 is not None:
            return z0
        if not inputs or not isinstance(inputs[0], Tensor):
            raise ValueError("z0 is needed where the first input is no tensor to take its shape")
        return torch.zeros_like(inputs[0])

    def _keep_adjoint(self, solution: Solution) -> None:
        self.last_adjoint = _without_state(solution)

    def extra_repr(self) -> str:
        """Return the solver and the gradient estimator."""
        return f"solver={self.solver},\ngradient={self.gradient}"


def _kind(value: object) -> str:
    """Return what something is, in words: a class where an instance is wanted, too."""
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def _without_state(solution: Solution) -> Solution:
    return solution._replace(z=solution.z.new_empty(0))
