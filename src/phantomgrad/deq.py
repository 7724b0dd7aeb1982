"""The layer: an equilibrium found by a solver and differentiated by an estimator."""

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo  # torch.compiler.disable imports the compiler

from phantomgrad.diagnostics import check_map
from phantomgrad.equilibrium import Equilibrium, call_note, explained, invalidated, without_state
from phantomgrad.gradients import GradientEstimator
from phantomgrad.layer_checks import check_cell, check_parts, check_state, default_start
from phantomgrad.nn import (
    Closure,
    CompiledCalls,
    Packing,
    discarded_parametrizations,
    in_one_graph,
    make_shareable,
    padding_of,
    pure_map,
    shared_masks,
    shared_parametrizations,
)
from phantomgrad.solvers import Map, Solution, Solver
from phantomgrad.solvers.context import differentiating, tangents, traced, transformed
from phantomgrad.solvers.maps import working_dtype
from phantomgrad.trajectory import Trajectory

Penalty = Callable[[Map, Tensor, Tensor], Tensor]
"""``penalty(f, z, attached)`` returns a scalar to add to the loss.

``z`` is the equilibrium without a graph, ``attached`` the same with its gradient.
"""


class DEQ(nn.Module):
    r"""The equilibrium of a cell, ``z* = cell(z*, *inputs)`` (Bai et al., 2019).

    ``solver`` finds it without a graph. ``gradient`` then puts it on the graph, and so decides
    what replaces :math:`(I - \partial f / \partial z)^{-1}` in the backward pass (Geng et al.,
    2021). Whether a graph is recorded depends on the autograd mode alone, never on ``training``.

    Each sample of a batch is solved independently, until its own residual is small. A cell that
    mixes samples (message passing between the rows of ``z``, batch normalisation) needs
    ``coupled=True``: otherwise a sample may be frozen while those it depends on still change.

    Parametrized weights (weight norm, spectral norm) are computed once per forward, and masks of
    :class:`phantomgrad.nn.VariationalDropout` drawn once; solve, gradient and adjoint share them.

    Solvers and gradient can be replaced at any time. A gradient with a state of its own
    (:class:`phantomgrad.AdaptiveDamping`) is copied, so that layers never share it. Under
    ``torch.compile(fullgraph=True)`` and ``torch.export`` the layer becomes part of the graph;
    under plain ``torch.compile`` it runs uncompiled between two graphs. In one graph and under
    ``torch.vmap``, where no values can be read, a solve spends its whole budget of evaluations.
    ``docs/library.md`` lists what works there and in the other transforms of ``torch.func``.

    Args:
        cell: the map ``f``, called as ``cell(z, *inputs, **keywords)``, where ``z`` is a tensor
            ``(B, *state)``, or a tuple, named tuple or dictionary of them. It returns the same
            structure, and does not modify ``z``.
        solver: finds the equilibrium. In half precision, its tolerance is raised to what rounding
            lets it reach.
        gradient: differentiates it with respect to the inputs and parameters of ``cell``.
        coupled: solve for the whole batch as one sample, with one residual.
        eval_solver: the solver in evaluation mode, by default ``solver``.

    Attributes:
        last_solution: the :class:`Solution` of the last forward pass, without ``z``; for logging.
        last_adjoint: that of the adjoint solver in the last backward pass, if there was one.
        penalty: ``penalty(f, z, attached)``, a scalar computed in every recorded pass with the map,
            weights and masks of that pass, for example a Jacobian penalty.
        last_penalty: its last result, to add to the loss; it holds a graph until set to ``None``.
        check_map: whether the next training pass, unless :class:`Steps` is the solver, checks that
            the map is deterministic and does not mix samples, with up to four more evaluations.
            Becomes ``False`` once that is done, for which it needs two samples unless ``coupled``.
    """

    __call__: Callable[..., Equilibrium]  # untyped in torch
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
        self.cell = cell
        self.coupled = coupled
        self.check_map = True
        self._checked_once = False
        check_parts(solver, gradient)
        self.gradient = gradient
        self.solver = solver
        self.eval_solver = eval_solver
        self._compiled: CompiledCalls | None = None
        self.last_solution: Solution | None = None
        self.last_adjoint: Solution | None = None
        self.penalty: Penalty | None = None
        self.last_penalty: Tensor | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "cell":
            check_cell(value)
            make_shareable(value)
        elif name in ("solver", "eval_solver"):
            if value is not None or name == "solver":
                check_parts(value, self.gradient, name)
        elif name == "gradient":
            for solver in (getattr(self, part, None) for part in ("solver", "eval_solver")):
                if solver is not None:
                    check_parts(solver, value)
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

    def forward(
        self,
        *inputs: Any,
        z0: Any = None,
        solver: Solver | None = None,
        record_at: Sequence[int] | None = None,
        state_mask: Any = None,
        **keywords: Any,
    ) -> Equilibrium:
        """Return the equilibrium, in the structure of ``z0``, and the solver's report.

        Args:
            inputs, keywords: passed to the cell, after the state.
            z0: where the solver starts; by default zeros like the first input. It receives a
                gradient only if the solve is recorded, by ``BackpropThroughSolver``.
            solver: used in this pass instead of the layer's.
            record_at: return the states after these numbers of evaluations as well, in a tuple
                with the equilibrium last, each attached on its own. A sample that has stopped
                before then is at its final value.
            state_mask: which entries of the state count, such as ``(B, T, 1)`` for sequences
                ``(B, T, D)``: boolean, with the dimensions of the state, each of its size or 1; for
                several states in their structure, ``None`` for one without padding. All other
                entries are padding, zero in the argument and the result of every evaluation: they
                count in no residual, step or adjoint solve, and return as zeros.

        Returns:
            The equilibrium on the graph, ``nan`` for samples without a finite evaluation, and the
            :class:`Solution`, whose ``z`` is off the graph and, for several states, packed to
            ``(B, D)``. With ``coupled``, the batch of the solution is one.
        """
        arguments = inputs, keywords, z0, solver, record_at, state_mask
        if not torch.compiler.is_compiling():
            return self._pass(*arguments)
        if not in_one_graph():
            # A graph of its loops would be long to compile, and could not stop early.
            return self._run_eagerly(*arguments)
        make_shareable(self.cell)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not torch.compiler.is_exporting()):
            return self._pass(*arguments)

    def _pass(
        self,
        inputs: tuple[Any, ...],
        keywords: dict[str, Any],
        z0: Any,
        solver: Solver | None,
        record_at: Sequence[int] | None,
        state_mask: Any,
    ) -> Equilibrium:
        z0 = default_start(inputs) if z0 is None else z0
        if solver is None:
            solver = (None if self.training else self.eval_solver) or self.solver
        else:
            check_parts(solver, self.gradient)
        grad = differentiating()
        recorded = self.gradient.needs_recorded_solve and grad
        f, start, packing = self.close_over(
            inputs, z0, keywords, attached=recorded, state_mask=state_mask
        )
        check_state(f, z0, solver, self.gradient)
        recorded_solver = solver if recorded else None
        trajectory = None if record_at is None else Trajectory(f, record_at, recorded_solver)
        solver = self.gradient.adapt_solver(solver) if grad else solver
        solver = solver.for_dtype(working_dtype(start))
        with shared_masks(self.cell), shared_parametrizations(self.cell):
            note = partial(call_note, self.cell, z0, inputs, keywords)
            graph = torch.set_grad_enabled(recorded and torch.is_grad_enabled())
            with graph, tangents(recorded), discarded_parametrizations(), explained(note):
                solution = invalidated(solver.solve(trajectory or f, start))
                if self.check_map and self.training and not (solver.fixed_length or traced()):
                    self._check_map(f, solution.z.detach())
            self._keep("last_solution", solution)
            z, earlier = solution.z, trajectory.states(solution) if trajectory else []
            if grad and self.training:
                self.gradient.observe(f, z)
            if grad or solver.fixed_length:
                pure, gradient = pure_map(f, z.device), self.gradient.after(solution)
                earlier = [gradient.attach(pure, state) for state in earlier]
                z = gradient.attach(pure, z, partial(self._keep, "last_adjoint"))
            # A recorded solve has left its state on the graph, where only the result belongs.
            solution = solution._replace(z=solution.z.detach(), inverse=None)
            if grad and self.penalty is not None:
                with explained(lambda: "penalty is called as penalty(f, z, attached)"):
                    self.last_penalty = self.penalty(f, solution.z, z)
        shown = map(f.unpadded, (*earlier, z))
        states = tuple(s if packing is None else packing.unpack(s) for s in shown)
        return Equilibrium(states if trajectory else states[-1], solution)

    _run_eagerly = _disable_dynamo(_pass)

    def _check_map(self, f: Map, z: Tensor) -> None:
        self.check_map = len(z) < 2 and not self.coupled  # one sample alone cannot show mixing
        seen, self._checked_once = self._checked_once, True
        if not (self.check_map and seen):
            check_map(f, z)

    def unroll(self, z: Any, steps: int, *inputs: Any) -> Any:
        """Apply the cell ``steps`` times to ``z``, recorded by autograd; for pretraining."""
        self.last_solution = None  # nothing is solved, so there is nothing to log
        with shared_masks(self.cell), shared_parametrizations(self.cell):
            for _ in range(steps):
                z = self.cell(z, *inputs)
        return z

    def compile_solve(self, **options: Any) -> None:
        """Compile the solver's evaluations of the cell, which autograd does not record.

        ``options`` are passed to ``torch.compile``. Copies of the layer, and layers that are
        unpickled, run uncompiled.
        """
        self._compiled = CompiledCalls(self.cell, **options)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()  # type: ignore[no-untyped-call]
        return {**state, "_compiled": None, "last_penalty": None}

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *options: Any) -> None:
        """Ignore the saved state of a gradient estimator if the present one has none."""
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
        state_mask: Any = None,
    ) -> tuple[Closure, Tensor, Packing | None]:
        """Return the cell as a map of its state only, ``z0`` as one tensor, and its packing.

        Several states are packed into ``(B, D)``, coupled samples into ``(1, D)``; a single tensor
        needs no packing (``None``). The tensor is detached from ``z0`` unless ``attached``.
        ``state_mask`` is that of :meth:`forward`.
        """
        if self._compiled is not None and self._compiled.module is not self.cell:
            self.compile_solve(**self._compiled.options)  # the cell has been replaced
        single = isinstance(z0, Tensor) and not self.coupled
        packing = None if single else Packing.of(z0, coupled=self.coupled)
        padding = None if state_mask is None else padding_of(state_mask, z0, packing)
        f = Closure(self.cell, self._compiled or self.cell, inputs, keywords, packing, padding)
        start = _start(z0 if packing is None else packing.pack(z0), attached)
        return f, f.unpadded(start), packing

    def _keep(self, name: str, solution: Solution) -> None:
        if not (transformed() or torch.compiler.is_exporting()):  # else no values to keep
            vars(self)[name] = without_state(solution)  # setattr of a module is slow

    def extra_repr(self) -> str:
        """Return the solver and the gradient estimator."""
        return f"solver={self.solver},\ngradient={self.gradient}"


def _start(z0: Tensor, attached: bool) -> Tensor:
    inference = not torch.compiler.is_compiling() and z0.is_inference()
    z0 = z0.clone() if inference else z0  # autograd cannot record inference tensors
    return z0 if attached else z0.detach()
