"""The layer: an equilibrium found by a solver and differentiated by an estimator."""

import copy
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from phantomgrad.closure import LayerMap, Trajectory, explained
from phantomgrad.compiled import CompiledCalls
from phantomgrad.context import cheap_to_read, readable, recording, set_recording
from phantomgrad.diagnostics import check_map
from phantomgrad.gradients import GradientEstimator
from phantomgrad.nn import current_pass, one_pass, share_weights
from phantomgrad.packing import Packing
from phantomgrad.precision import working_dtype
from phantomgrad.solvers import Map, Solution, Solver
from phantomgrad.solvers.base import flat, per_sample

PassHook = Callable[["DEQ", Map, Tensor, Tensor], None]
"""``hook(layer, f, z, attached)``: see :meth:`DEQ.register_pass_hook`."""


class Equilibrium(NamedTuple):
    """The result of a layer, ``z, solution = layer(x)``.

    Attributes:
        z: the equilibrium with its gradient, in the structure of ``z0``; with ``record_at``, a
            tuple of states with the equilibrium last.
        solution: the report of the solver. Its ``z`` has no gradient.
    """

    z: Any
    solution: Solution


class DEQ(nn.Module):
    r"""The equilibrium of a cell, ``z* = cell(z*, *inputs)`` (Bai et al., 2019).

    ``solver`` finds it, which autograd does not record. ``gradient`` then attaches it to the graph,
    and so decides what replaces :math:`(I - \partial f / \partial z)^{-1}` in the backward pass
    (Geng et al., 2021). Whether there is a gradient depends on the autograd mode alone
    (``torch.no_grad``), never on ``training``.

    Each sample of a batch is solved independently, until its own residual is small. A cell that
    mixes samples (message passing between the rows of ``z``, batch normalisation) needs
    ``coupled=True``: otherwise a sample may be frozen while those it depends on still change.

    A forward of the layer and its backward are one *pass*. Parametrized weights (weight norm,
    spectral norm) are computed once in a pass, and the masks of
    :class:`phantomgrad.nn.VariationalDropout` drawn once; solve, gradient and adjoint share them.

    Solver and gradient can be replaced at any time. A gradient with a state of its own
    (:class:`phantomgrad.AdaptiveDamping`) is copied, so that layers never share it. Under plain
    ``torch.compile`` the layer runs uncompiled between two graphs. ``docs/library.md`` lists what
    works with compilers and in the transforms of ``torch.func``.

    Args:
        cell: the map ``f``, called as ``cell(z, *inputs, **keywords)``, where ``z`` is a tensor
            ``(B, *state)``, or a tuple, named tuple or dictionary of them. It returns the same
            structure, and does not modify ``z``.
        solver: finds the equilibrium. In half precision, its tolerance is raised to what rounding
            lets it reach.
        gradient: differentiates it with respect to the inputs and parameters of ``cell``.
        coupled: solve for the whole batch as one sample, with one residual.

    Attributes:
        last_solution: the :class:`Solution` of the last forward pass, without ``z``; for logging.
        last_adjoint: that of the adjoint solver in the last backward pass, if there was one.
        check_map: whether the next training pass checks that the map is deterministic and does not
            mix samples, with up to four more evaluations. Becomes ``False`` after the check, for
            which a batch needs two samples unless ``coupled``. :class:`Steps` is not checked.
        fullgraph: set it to ``True`` before ``torch.compile(fullgraph=True)``, and the layer
            becomes part of the graph, in which a solve spends its budget. ``torch.export`` does not
            need it.
    """

    __call__: Callable[..., Equilibrium]  # untyped in torch
    solver: Solver
    gradient: GradientEstimator

    def __init__(
        self,
        cell: nn.Module,
        solver: Solver,
        gradient: GradientEstimator,
        *,
        coupled: bool = False,
    ) -> None:
        super().__init__()
        self.cell = cell
        self.solver = solver
        self.gradient = gradient
        self.coupled = coupled
        self.fullgraph = False
        self.check_map = True
        self.last_solution: Solution | None = None
        self.last_adjoint: Solution | None = None
        self._pass_hooks: OrderedDict[int, PassHook] = OrderedDict()

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "cell":
            if not isinstance(value, nn.Module):
                raise TypeError(f"cell must be a torch.nn.Module, got {_kind(value)}")
            share_weights(value)
            self._compiled: CompiledCalls | None = None
        elif name == "solver":
            check_parts(value, getattr(self, "gradient", None))
        elif name == "gradient":
            check_parts(getattr(self, "solver", None), value)
            value = value if value.state is None else copy.deepcopy(value)
            self.gradient_state = value.state  # registered, if it is a module
        super().__setattr__(name, value)

    def forward(
        self,
        *inputs: Any,
        z0: Any = None,
        solver: Solver | None = None,
        record_at: Sequence[int] | None = None,
        **keywords: Any,
    ) -> Equilibrium:
        """Return the equilibrium, in the structure of ``z0``, and the solver's report.

        Args:
            inputs, keywords: passed to the cell, after the state.
            z0: where the solver starts; by default zeros like the first input. It receives a
                gradient only if the solve is recorded, by ``BackpropThroughSolver``.
            solver: used in this pass instead of the layer's.
            record_at: return the states after these numbers of evaluations as well, in a tuple
                with the equilibrium last, each attached on its own. Stopped samples repeat their
                final value.

        Returns:
            The equilibrium with its gradient, ``nan`` for samples without a finite evaluation, and
            the :class:`Solution`. The ``z`` of the solution has no gradient; of several states it
            is packed to ``(B, D)``. With ``coupled``, the batch of the solution is one.
        """
        arguments = inputs, keywords, z0, solver, record_at
        exporting = torch.compiler.is_exporting()
        if torch.compiler.is_compiling() and not (self.fullgraph or exporting):
            # A graph of the loops would be long to compile and could not stop early. The layer is
            # part of a graph with fullgraph=True if `layer.fullgraph = True` is set before.
            uncompiled: Any = torch.compiler.disable(self._pass)  # type: ignore[no-untyped-call]
            return uncompiled(*arguments)  # type: ignore[no-any-return]
        return self._pass(*arguments)

    def _pass(
        self,
        inputs: tuple[Any, ...],
        keywords: dict[str, Any],
        z0: Any,
        solver: Solver | None,
        record_at: Sequence[int] | None,
    ) -> Equilibrium:
        z0 = default_start(inputs) if z0 is None else z0
        if solver is not None:
            check_parts(solver)
        solver = solver or self.solver
        solver = solver.for_training() if self.training else solver
        with one_pass(self.cell), explained(self.cell, z0, inputs, keywords):
            recorded = self.gradient.needs_recorded_solve and recording()
            f, start = self.close_over(inputs, z0, keywords, attached=recorded)
            trajectory = None if record_at is None else Trajectory(f, record_at, solver, recorded)
            solution = self._solve(trajectory or f, start, solver, recorded)
            earlier = trajectory.states(solution) if trajectory else []
            *earlier, z = self._attach(f, [*earlier, solution.z], solution, solver.fixed_length)
            # A recorded solve has left its state on the graph, where only the result belongs.
            solution = solution._replace(z=solution.z.detach(), inverse=None)
            for hook in self._pass_hooks.values():
                hook(self, f, solution.z, z)
        states = tuple(f.shown(s) for s in (*earlier, z))
        return Equilibrium(states if trajectory else states[-1], solution)

    def _solve(self, f: Map, start: Tensor, solver: Solver, recorded: bool) -> Solution:
        if recording():
            solver = self.gradient.adapt_solver(solver)
        with set_recording(recorded):
            solution = solver.for_dtype(working_dtype(start)).solve(f, start)
            if self.check_map and self.training and not solver.fixed_length:
                self._check_map(f, solution.z.detach())
        solution = invalidated(solution)
        solution = solution._replace(distance=distance(solution.z.detach(), start.detach()))
        self._keep("last_solution", solution)
        return solution

    def _attach(
        self, f: Map, states: list[Tensor], solution: Solution, fixed_length: bool
    ) -> list[Tensor]:
        """Return states on the graph; without one, take only steps that belong to the model."""
        if recording() and self.training:
            self.gradient.observe(f, solution.z)
        if not recording() and not fixed_length:
            return states
        gradient, report = self.gradient.after(solution), partial(self._keep, "last_adjoint")
        *earlier, z = states
        attached = [*(gradient.attach(f, z) for z in earlier), gradient.attach(f, z, report)]
        for found in attached:
            if not isinstance(found, Tensor) or found.shape != z.shape:
                got = tuple(found.shape) if isinstance(found, Tensor) else _kind(found)
                raise ValueError(
                    f"attach of {type(gradient).__name__} must return a tensor of the shape of "
                    f"z_star, {tuple(z.shape)}, got {got}"
                )
        return attached

    def _check_map(self, f: Map, z: Tensor) -> None:
        if readable(z) and (len(z) > 1 or self.coupled):  # one sample alone cannot show mixing
            self.check_map = False
            check_map(f, z)

    def unroll(self, z: Any, steps: int, *inputs: Any) -> Any:
        """Apply the cell ``steps`` times to ``z``, recorded by autograd; for pretraining."""
        self.last_solution = self.last_adjoint = None  # nothing is solved: nothing to log
        with one_pass(self.cell):
            for _ in range(steps):
                z = self.cell(z, *inputs)
        return z

    def compile_solve(
        self, *, batch: int | None = None, recorded: bool = False, **options: Any
    ) -> None:
        """Compile the solver's evaluations of the cell.

        A cell that replaces this one, copies of the layer, and layers that are unpickled run
        uncompiled.

        Args:
            batch: the only number of samples that is compiled for; by default any.
            recorded: compile the evaluations that autograd records as well, with their backward,
                but not those of adjoint equations and Jacobian penalties. Gradients through them
                have no derivative of their own (``create_graph=True``).
            options: passed to ``torch.compile``.
        """
        self._compiled = CompiledCalls(self.cell, batch, recorded, options)

    def register_pass_hook(self, hook: PassHook) -> RemovableHandle:
        """Call ``hook(layer, f, z, attached)`` at the end of each pass.

        It is for measurements, and for penalties such as :func:`phantomgrad.jacobian_regularizer`.

        ``f`` is the map of this pass; called after the hook has returned, it computes weights and
        masks anew. ``z`` is the equilibrium as a constant, ``attached`` the same with its gradient;
        several states are packed in one tensor, ``(B, D)``. Hooks run in evaluation too, where
        ``attached.requires_grad`` is ``False``.
        Copies of the layer have no hooks. Returns a handle, whose ``remove()`` removes the hook.
        """
        handle = RemovableHandle(self._pass_hooks)
        self._pass_hooks[handle.id] = hook
        return handle

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()  # type: ignore[no-untyped-call]
        return {**state, "_compiled": None, "_pass_hooks": OrderedDict()}

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *options: Any) -> None:
        """Load a state dict with or without the state of a gradient estimator."""
        if self.gradient.state is None:
            for key in [key for key in state_dict if key.startswith(f"{prefix}gradient_state.")]:
                del state_dict[key]
        else:
            for name, value in self.gradient.state.state_dict().items():
                state_dict.setdefault(f"{prefix}gradient_state.{name}", value)
        super()._load_from_state_dict(state_dict, prefix, *options)

    def close_over(
        self,
        inputs: tuple[Any, ...],
        z0: Any,
        keywords: Mapping[str, Any] = MappingProxyType({}),
        *,
        attached: bool = False,
    ) -> tuple["LayerMap", Tensor]:
        """Return the cell as a map of its state only, and ``z0`` as one tensor.

        Several states are packed into ``(B, D)``, coupled samples into ``(1, D)``. The tensor is
        detached from ``z0`` unless ``attached``.
        """
        single = isinstance(z0, Tensor) and not self.coupled
        packing = None if single else Packing.of(z0, coupled=self.coupled)
        call = self._compiled or self.cell
        f = LayerMap(self.cell, call, inputs, keywords, packing, current_pass())
        start = z0 if packing is None else packing.pack(z0)
        if not torch.compiler.is_compiling() and start.is_inference():
            start = start.clone()  # autograd cannot record inference tensors
        return f, start if attached else start.detach()

    def _keep(self, name: str, solution: Solution) -> None:
        vars(self)[name] = solution._replace(z=solution.z.new_empty(0), inverse=None)

    def extra_repr(self) -> str:
        """Return the solver and the gradient estimator."""
        return f"solver={self.solver},\ngradient={self.gradient}"


def invalidated(solution: Solution) -> Solution:
    """Set samples without a finite evaluation, whose state is only the start, to ``nan``."""
    failed = solution.residual == torch.inf
    if cheap_to_read(failed) and not failed.any():
        return solution
    z = torch.where(per_sample(failed, solution.z), torch.nan, solution.z)
    return solution._replace(z=z)


def distance(a: Tensor, b: Tensor) -> Tensor:
    """Return the norms of the differences of samples, ``(B,)``, in float32 at least."""
    difference = (a - b).to(torch.promote_types(a.dtype, torch.float32))
    norms: Tensor = torch.linalg.vector_norm(flat(difference), dim=1)
    return norms


def check_parts(solver: Solver | None, gradient: GradientEstimator | None = None) -> None:
    """Raise unless a layer can have these parts."""
    for part, kind, name in ((solver, Solver, "solver"), (gradient, GradientEstimator, "gradient")):
        if part is not None and not isinstance(part, kind):
            raise TypeError(
                f"{name} must be a phantomgrad.{kind.__name__} (Broyden() is a solver, "
                "ImplicitGradient() a gradient, and GMRES() for adjoint equations only), got "
                f"{_kind(part)}"
            )
    if solver is not None and gradient is not None:
        gradient.adapt_solver(solver)


def default_start(inputs: Sequence[Any]) -> Tensor:
    """Return zeros like the first input."""
    if not inputs or not isinstance(inputs[0], Tensor):
        got = _kind(inputs[0]) if inputs else "none"
        raise ValueError(f"z0 is needed if the first input is not a tensor, got {got}")
    return torch.zeros_like(inputs[0])


def _kind(value: object) -> str:
    """Return what ``value`` is, for an error."""
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
