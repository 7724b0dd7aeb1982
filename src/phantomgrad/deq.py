"""The layer: an equilibrium found by a solver and differentiated by an estimator."""

import copy
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from phantomgrad.diagnostics import check_map
from phantomgrad.equilibrium import Equilibrium, call_note, noted
from phantomgrad.gradients import GradientEstimator
from phantomgrad.nn import (
    CompiledCalls,
    Packing,
    discarded_parametrizations,
    shared_masks,
    shared_parametrizations,
)
from phantomgrad.solvers import Map, Solution, Solver
from phantomgrad.solvers.accelerators import may_read
from phantomgrad.solvers.maps import working_dtype

Penalty = Callable[[Map, Tensor, Tensor], Tensor]
"""A scalar of the map, its equilibrium off the graph and on it, ``penalty(f, z, attached)``."""


class DEQ(nn.Module):
    r"""The equilibrium of a cell, ``z* = cell(z*, *inputs)`` (Bai et al., 2019).

    ``solver`` finds it without a graph. ``gradient`` then puts it on the graph, and so decides
    what replaces :math:`(I - \partial f / \partial z)^{-1}` in the backward pass (Geng et al.,
    2021). Whether a graph is recorded depends on the autograd mode alone, never on ``training``.

    The samples of a batch are solved for independently, each until its own residual is small. A
    cell that mixes them (message passing between the rows of ``z``, batch normalisation) needs
    ``coupled=True``: otherwise a sample may be frozen before the signal of the others reaches it.

    Parametrized weights (weight norm, spectral norm) are computed once per forward, and masks of
    :class:`phantomgrad.nn.VariationalDropout` drawn once; solve, gradient and adjoint share them.

    Solvers and gradient can be replaced at any time. A gradient with a state of its own
    (:class:`phantomgrad.AdaptiveDamping`) is copied, so that layers never share it. Of torch's
    function transforms, ``torch.func.grad`` works, with UPG only: others call autograd themselves.

    Args:
        cell: the map ``f``, called as ``cell(z, *inputs, **keywords)``, where ``z`` is a tensor
            ``(B, *state)``, or a tuple, named tuple or dictionary of them. It returns the same
            structure, and does not modify ``z``.
        solver: finds the equilibrium. In half precision, its tolerance is raised to what rounding
            lets it reach.
        gradient: differentiates it with respect to the inputs and parameters of ``cell``.
        coupled: solve for the whole batch as one sample, with one residual.
        eval_solver: the solver in evaluation mode, by default ``solver``.
    """

    solver: Solver
    gradient: GradientEstimator
    eval_solver: Solver | None

    def __init__(
        self,
        cell: nn.Module,
        solver: Solver,
        gradient: GradientEstimator,
        *,
        coupled: bool = False,
        eval_solver: Solver | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(cell, nn.Module):
            raise TypeError(f"cell must be a torch.nn.Module, got {_kind(cell)}")
        if isinstance(cell, nn.RNNCellBase):
            raise TypeError(
                f"cell must take its state first, got {_kind(cell)}: wrap it in a module"
            )
        self.cell = cell
        self.coupled = coupled
        self.check_map = True
        """Whether the next training pass tests the map, once, with up to four evaluations.

        Whether it mixes samples is tested with the first batch of at least two.
        """
        self._tested = False
        _check_parts(solver, gradient)
        self.gradient = gradient
        self.solver = solver
        self.eval_solver = eval_solver
        self._compiled: CompiledCalls | None = None
        self.last_solution: Solution | None = None
        """Result of the solver in the last forward pass, without ``z``; for logging."""
        self.last_adjoint: Solution | None = None
        """Result of the adjoint solver in the last backward pass, without ``z``, if any."""
        self.penalty: Penalty | None = None
        """Called in every recorded pass, with the map, weights and masks of that pass."""
        self.last_penalty: Tensor | None = None
        """The result of ``penalty`` in the last pass, on the graph; set to ``None`` after use."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("solver", "eval_solver"):
            if value is not None or name == "solver":
                _check_parts(value, self.gradient)
        elif name == "gradient":
            for solver in (getattr(self, part, None) for part in ("solver", "eval_solver")):
                if solver is not None:
                    _check_parts(solver, value)
            value = value if value.state is None else copy.deepcopy(value)
            self.gradient_state = value.state  # registered, if it is a module
        elif type(self) is DEQ and name not in vars(self):
            self._refuse_setting(name, value)
        super().__setattr__(name, value)

    def _refuse_setting(self, name: str, value: Any) -> None:
        for part in ("solver", "gradient"):
            if name in getattr(vars(self).get(part), "__dataclass_fields__", ()):
                raise AttributeError(
                    f"{name} belongs to the {part} of a layer, which is replaced as a whole: "
                    f"layer.{part} = dataclasses.replace(layer.{part}, {name}={value!r})"
                )

    # A graph of its loops would be long to compile, and slower than they are.
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def forward(
        self, *inputs: Any, z0: Any = None, solver: Solver | None = None, **keywords: Any
    ) -> Equilibrium:
        """Return the equilibrium, in the structure of ``z0``, and the solver's report.

        Args:
            inputs, keywords: passed to the cell, after the state.
            z0: where the solver starts; by default zeros like the first input. It receives a
                gradient only if the solve is recorded, by ``BackpropThroughSolver``.
            solver: used in this pass instead of the layer's.

        Returns:
            The equilibrium on the graph, ``nan`` for samples without a finite evaluation, and the
            :class:`Solution`, whose ``z`` is off the graph and, for several states, packed to
            ``(B, D)``. With ``coupled``, the batch of the solution is one.
        """
        if z0 is None:
            if not inputs or not isinstance(inputs[0], Tensor):
                got = _kind(inputs[0]) if inputs else "none"
                raise ValueError(f"z0 is needed if the first input is not a tensor, got {got}")
            z0 = torch.zeros_like(inputs[0])
        if solver is None:
            solver = (None if self.training else self.eval_solver) or self.solver
        else:
            _check_parts(solver, self.gradient)
        grad = torch.is_grad_enabled()
        recorded = self.gradient.needs_recorded_solve and grad
        f, start, packing = self.close_over(inputs, z0, keywords, attached=recorded)
        solver = solver.reachable(working_dtype(start))
        with shared_masks(self.cell), shared_parametrizations(self.cell):
            note = partial(call_note, self.cell, z0, inputs, keywords)
            with torch.set_grad_enabled(recorded), discarded_parametrizations(), noted(note):
                solution = _invalidated(solver.solve(f, start))
                if self.check_map and self.training:
                    self._check_map(f, solution.z.detach())
            vars(self)["last_solution"] = _without_state(solution)  # setattr of a module is slow
            z = solution.z
            if grad and self.training:
                self.gradient.observe(f, z)
            if grad or solver.fixed_length:
                z = self.gradient.attach(f, z, self._keep_adjoint)
            if grad and self.penalty is not None:
                with noted(lambda: "penalty is called as penalty(f, z, attached)"):
                    self.last_penalty = self.penalty(f, solution.z, z)
        return Equilibrium(z if packing is None else packing.unpack(z), solution)

    def _check_map(self, f: Map, z: Tensor) -> None:
        waits = len(z) < 2 and not self.coupled
        tested, self._tested, self.check_map = self._tested, True, waits
        if not (waits and tested):
            check_map(f, z)

    def unroll(self, z: Any, steps: int, *inputs: Any) -> Any:
        """Return ``z`` after recorded applications of the cell, without solver and gradient."""
        self.last_solution = None  # nothing is solved, so there is nothing to log
        with shared_masks(self.cell), shared_parametrizations(self.cell):
            for _ in range(steps):
                z = self.cell(z, *inputs)
        return z

    def compile_solve(self, **options: Any) -> None:
        """Compile the evaluations of the cell that no graph records, those of the solver.

        Copies and pickles of the layer are not compiled. ``options`` are those of
        ``torch.compile``.
        """
        self._compiled = CompiledCalls(self.cell, **options)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()  # type: ignore[no-untyped-call]
        return {**state, "_compiled": None, "last_penalty": None}

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *options: Any) -> None:
        """Leave out the state of a gradient that has been replaced by one without a state."""
        if self.gradient.state is None:
            for key in [key for key in state_dict if key.startswith(f"{prefix}gradient_state.")]:
                del state_dict[key]
        super()._load_from_state_dict(state_dict, prefix, *options)

    def close_over(
        self,
        inputs: tuple[Any, ...],
        z0: Any,
        keywords: Mapping[str, Any] = MappingProxyType({}),
        *,
        attached: bool = False,
    ) -> tuple[Map, Tensor, Packing | None]:
        """Return the map of the state alone, ``z0`` as one tensor, and its packing.

        Several states are packed to ``(B, D)``, coupled samples to ``(1, D)``, a single tensor not
        at all (``None``). The result is detached from ``z0`` unless ``attached``.
        """
        if self._compiled is not None and self._compiled.module is not self.cell:
            self.compile_solve(**self._compiled.options)  # the cell has been replaced
        call = self._compiled or self.cell
        if isinstance(z0, Tensor) and not self.coupled:
            return lambda z: call(z, *inputs, **keywords), _start(z0, attached), None
        packing = Packing.of(z0, coupled=self.coupled)

        def f(packed: Tensor) -> Tensor:
            return packing.pack(call(packing.unpack(packed), *inputs, **keywords))

        return f, _start(packing.pack(z0), attached), packing

    def _keep_adjoint(self, solution: Solution) -> None:
        self.last_adjoint = _without_state(solution)

    def extra_repr(self) -> str:
        """Return the solver and the gradient estimator."""
        return f"solver={self.solver},\ngradient={self.gradient}"


def _check_parts(solver: Solver, gradient: GradientEstimator) -> None:
    for name, part, method in (("solver", solver, "solve"), ("gradient", gradient, "attach")):
        if isinstance(part, type) or not hasattr(part, method):
            raise TypeError(
                f"{name} must be an object with a method {method} (Broyden() is a solver, "
                f"ImplicitGradient() a gradient), got {_kind(part)}"
            )
    if gradient.needs_recorded_solve and not solver.differentiable:
        raise ValueError(
            f"{type(gradient).__name__} needs a solver that autograd can record "
            f"(FixedPoint, Steps), got {type(solver).__name__}"
        )


def _start(z0: Tensor, attached: bool) -> Tensor:
    inference = not torch.compiler.is_compiling() and z0.is_inference()
    z0 = z0.clone() if inference else z0  # autograd takes no inference tensors
    return z0 if attached else z0.detach()


def _invalidated(solution: Solution) -> Solution:
    """Set samples without a finite evaluation, whose state is only the start, to ``nan``."""
    failed = solution.residual == torch.inf
    if may_read(failed.device) and not failed.any():
        return solution
    failed = failed.view(-1, *[1] * (solution.z.dim() - 1))
    return solution._replace(z=torch.where(failed, torch.nan, solution.z))


def _kind(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def _without_state(solution: Solution) -> Solution:
    return Solution(solution.z.new_empty(0), *solution[1:])
