"""The layer: an equilibrium found by a solver and differentiated by an estimator."""

import copy
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.hooks import RemovableHandle

from phantomgrad.checks import cheap_to_read, check_integers, recording, set_recording
from phantomgrad.compiled import CompiledCalls
from phantomgrad.diagnostics import check_map
from phantomgrad.gradients import GradientEstimator
from phantomgrad.gradients.phantom import PhantomGradient
from phantomgrad.nn import Pass, current_pass, entered, is_sharded, one_pass, share_weights
from phantomgrad.packing import Packing, padding_of
from phantomgrad.precision import working_dtype
from phantomgrad.solvers import LinearSolver, Map, Reversible, Solution, Solver, Steps
from phantomgrad.solvers.base import flat, per_sample

Penalty = Callable[[Map, Tensor, Tensor], Tensor]
"""``penalty(f, z, attached)`` returns a scalar to add to the loss.

``z`` is the equilibrium as a constant, ``attached`` the same with its gradient.
"""


PassHook = Callable[["DEQ", Map, Tensor, Tensor], None]
"""``hook(layer, f, z, attached)``: see :meth:`DEQ.register_pass_hook`."""


class Equilibrium(NamedTuple):
    """The result of a layer, ``z, solution = layer(x)``. Using the pair as a tensor is an error.

    Attributes:
        z: the equilibrium with its gradient, in the structure of ``z0``; with ``record_at``, a
            tuple of states with the equilibrium last.
        solution: the report of the solver. Its ``z`` has no gradient.
    """

    z: Any
    solution: Solution

    @classmethod
    def __torch_function__(cls, function: Any, *_: Any) -> NoReturn:
        raise TypeError(f"{getattr(function, '__name__', function)} {_PAIR}")

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{name!r} {_PAIR}")


_PAIR = (
    "was applied to the result of a DEQ, which is a pair: write z, solution = layer(x), and in an "
    "nn.Sequential use a module of your own that returns layer(x).z"
)


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
        penalty: a function ``penalty(f, z, attached)`` that returns a scalar, for example a
            Jacobian penalty. It is called in every pass that has a gradient.
        last_penalty: its last result, to add to the loss; it holds a graph until set to ``None``.
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
        self.coupled = coupled
        self.fullgraph = False
        self.check_map = True
        self._checked_once = False
        check_parts(solver, gradient)
        self.gradient = gradient
        self.solver = solver
        self._compiled: CompiledCalls | None = None
        self.last_solution: Solution | None = None
        self.last_adjoint: Solution | None = None
        self.penalty: Penalty | None = None
        self._pass_hooks: OrderedDict[int, PassHook] = OrderedDict()
        self.last_penalty: Tensor | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "cell":
            check_cell(value)
            share_weights(value)
        elif name == "solver":
            check_parts(value, self.gradient)
        elif name == "gradient":
            check_parts(vars(self).get("solver"), value)
            value = value if value.state is None else copy.deepcopy(value)
            self.gradient_state = value.state  # registered, if it is a module
        super().__setattr__(name, value)

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
                with the equilibrium last, each attached on its own. Stopped samples repeat their
                final value.
            state_mask: true for the entries of the state that count, false for padding. Boolean,
                with the dimensions of the state, each of its size or 1, such as ``(B, T, 1)`` for
                sequences ``(B, T, D)``. For several states, the same structure of masks, with
                ``None`` for a state without padding. Padding is set to zero in the argument and the
                result of every evaluation, so it counts in no residual, step or adjoint solve.

        Returns:
            The equilibrium with its gradient, ``nan`` for samples without a finite evaluation, and
            the :class:`Solution`. The ``z`` of the solution has no gradient; of several states it
            is packed to ``(B, D)``. With ``coupled``, the batch of the solution is one.
        """
        arguments = inputs, keywords, z0, solver, record_at, state_mask
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
        state_mask: Any,
    ) -> Equilibrium:
        z0 = default_start(inputs) if z0 is None else z0
        solver = self.solver if solver is None else solver
        check_parts(solver, self.gradient, recording())
        solver = solver.for_training() if self.training else solver
        check_sharding(self.cell, solver, self.gradient)
        note = partial(call_note, self.cell, z0, inputs, keywords)
        given = (t for t in tree_leaves((inputs, keywords)) if isinstance(t, nn.Module))
        with one_pass(self.cell, *given), explained(note):
            recorded = self.gradient.needs_recorded_solve and recording()
            f, start = self.close_over(
                inputs, z0, keywords, attached=recorded, state_mask=state_mask
            )
            self._check_state(f, z0, solver)
            trajectory = None if record_at is None else Trajectory(f, record_at, solver, recorded)
            solution = self._solve(trajectory or f, start, solver, recorded)
            earlier = trajectory.states(solution) if trajectory else []
            *earlier, z = self._attach(f, [*earlier, solution.z], solution, solver.fixed_length)
            # A recorded solve has left its state on the graph, where only the result belongs.
            solution = solution._replace(z=solution.z.detach(), inverse=None)
            if recording() and self.penalty is not None:
                self.last_penalty = self.penalty(f, solution.z, z)
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
        return [*(gradient.attach(f, z) for z in earlier), gradient.attach(f, z, report)]

    def _check_map(self, f: Map, z: Tensor) -> None:
        if not cheap_to_read(z) and z.device.type == "cpu":
            return  # compiled, in a vmap, or without values
        self.check_map = len(z) < 2 and not self.coupled  # one sample alone cannot show mixing
        seen, self._checked_once = self._checked_once, True
        if not (self.check_map and seen):
            check_map(f, z)

    def _check_state(self, f: "LayerMap", z0: Any, solver: Solver) -> None:
        """Raise if the solver cannot take a state; warn if its start gets none of its gradient."""
        norms = (
            getattr(part, "norm", None) for part in (solver, getattr(self.gradient, "solver", 0))
        )
        if f.padding is not None and "rms" in norms:
            raise ValueError(
                "norm must be 'l2' or 'max' with a state_mask, got 'rms', a mean over padding too"
            )
        if f.packing is not None and f.packing.integers is not None:
            check_counters(solver, self.gradient)
        if self.gradient.needs_recorded_solve or not recording():
            return
        if any(isinstance(t, Tensor) and t.requires_grad for t in tree_leaves(z0)):
            warnings.warn(
                f"z0 requires a gradient, but gets none with {type(self.gradient).__name__}: "
                "detach it, or learn the start with BackpropThroughSolver",
                stacklevel=6,  # the call of the layer
            )

    def unroll(self, z: Any, steps: int, *inputs: Any) -> Any:
        """Apply the cell ``steps`` times to ``z``, recorded by autograd; for pretraining."""
        self.last_solution = None  # nothing is solved, so there is nothing to log
        with one_pass(self.cell):
            for _ in range(steps):
                z = self.cell(z, *inputs)
        return z

    def compile_solve(
        self, *, batch: int | None = None, recorded: bool = False, **options: Any
    ) -> None:
        """Compile the solver's evaluations of the cell.

        Copies of the layer, and layers that are unpickled, run uncompiled.

        Args:
            batch: the only number of samples that is compiled for; by default any.
            recorded: compile the evaluations that autograd records as well, with their backward,
                but not those of adjoint equations and Jacobian penalties. Gradients through them
                have no derivative of their own (``create_graph=True``).
            options: passed to ``torch.compile``.
        """
        self._compiled = CompiledCalls(self.cell, batch, recorded, options)

    def register_pass_hook(self, hook: PassHook) -> RemovableHandle:
        """Call ``hook(layer, f, z, attached)`` at the end of each pass, for measurements.

        ``f`` is the map of this pass; called after the hook has returned, it computes weights and
        masks anew. ``z`` is the equilibrium as a constant, ``attached`` the same with its gradient.
        Copies of the layer have no hooks. Returns a handle, whose ``remove()`` removes the hook.
        """
        handle = RemovableHandle(self._pass_hooks)
        self._pass_hooks[handle.id] = hook
        return handle

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()  # type: ignore[no-untyped-call]
        dropped: dict[str, Any] = {"_compiled": None, "_pass_hooks": OrderedDict()}
        return {**state, **dropped, "last_penalty": None}

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
        state_mask: Any = None,
    ) -> tuple["LayerMap", Tensor]:
        """Return the cell as a map of its state only, and ``z0`` as one tensor.

        Several states are packed into ``(B, D)``, coupled samples into ``(1, D)``. The tensor is
        detached from ``z0`` unless ``attached``. ``state_mask`` is that of :meth:`forward`.
        """
        if self._compiled is not None and self._compiled.module is not self.cell:
            # The cell has been replaced.
            self.compile_solve(**self._compiled.settings)
        single = isinstance(z0, Tensor) and not self.coupled
        packing = None if single else Packing.of(z0, coupled=self.coupled)
        padding = None if state_mask is None else padding_of(state_mask, z0, packing)
        call = self._compiled or self.cell
        f = LayerMap(self.cell, call, inputs, keywords, packing, padding, current_pass())
        start = z0 if packing is None else packing.pack(z0)
        if not torch.compiler.is_compiling() and start.is_inference():
            start = start.clone()  # autograd cannot record inference tensors
        return f, f.unpadded(start if attached else start.detach())

    def _keep(self, name: str, solution: Solution) -> None:
        vars(self)[name] = solution._replace(z=solution.z.new_empty(0), inverse=None)

    def extra_repr(self) -> str:
        """Return the solver and the gradient estimator."""
        return f"solver={self.solver},\ngradient={self.gradient}"


@dataclass(frozen=True)
class LayerMap:
    """The cell as a map of its state alone, ``f(z) = cell(z, *inputs, **keywords)``.

    ``z`` is one tensor, packed by ``packing``. Entries that are ``padding`` are zero in argument
    and result, so that they count in no norm, product of states or vector-Jacobian product.
    ``held`` is the pass that the map is for.
    """

    cell: nn.Module
    call: Callable[..., Any]
    inputs: Sequence[Any]
    keywords: Mapping[str, Any]
    packing: Packing | None
    padding: Tensor | None = None  # boolean, broadcast to z
    held: Pass | None = None

    def __call__(self, z: Tensor) -> Tensor:
        """Return the next state."""
        z = self.unpadded(z)
        if self.packing is None:
            return self.unpadded(self.call(z, *self.inputs, **self.keywords))
        fz = self.call(self.packing.unpack(z), *self.inputs, **self.keywords)
        return self.unpadded(self.packing.pack(fz))

    def unpadded(self, z: Tensor) -> Tensor:
        """Return ``z`` with zeros where it is padding."""
        return z if self.padding is None else z.masked_fill(self.padding, 0)

    def shown(self, z: Tensor) -> Any:
        """Return ``z`` in the structure of the states, with zeros where it is padding."""
        z = self.unpadded(z)
        return z if self.packing is None else self.packing.unpack(z)

    @property
    def tensors(self) -> list[Tensor]:
        """The differentiable tensors: parameters of the cell, weights of the pass, and inputs."""
        parameters, weights, inputs = self._differentiable()
        return [*parameters, *weights.values(), *inputs]

    def _differentiable(self) -> tuple[list[Tensor], dict[int, Tensor], list[Tensor]]:
        weights = {} if self.held is None else self.held.weights
        inputs = tree_leaves((tuple(self.inputs), dict(self.keywords)))
        return (
            [p for p in self.cell.parameters() if p.requires_grad],
            {key: w for key, w in weights.items() if w.requires_grad},
            [t for t in inputs if isinstance(t, Tensor) and t.requires_grad],
        )

    def with_tensors(self, tensors: list[Tensor]) -> Map:
        """Return the map with others in the place of ``tensors``.

        It can be called at any time and in any thread, since it calls a copy of the cell, with
        these parameters and the buffers of the cell.
        """
        given = iter(tensors)
        parameters, weights, inputs = self._differentiable()
        # zip asks the first for its next element before the second.
        shared: dict[int, Any] = {id(t): t for t in (*self.cell.parameters(), *self.cell.buffers())}
        shared |= {id(old): new for old, new in zip(parameters, given, strict=False)}
        new_weights = dict(zip(weights, given, strict=False))
        replaced = {id(old): new for old, new in zip(inputs, given, strict=False)}
        new_inputs, keywords = tree_map(
            lambda t: replaced.get(id(t), t), (tuple(self.inputs), dict(self.keywords))
        )
        try:
            cell = copy.deepcopy(self.cell, shared)
        except RuntimeError as error:
            raise ValueError(
                "the cell must not hold a tensor with a graph that is neither a parameter of the "
                "cell nor an input of the layer: pass the tensor to the layer"
            ) from error
        f = replace(self, cell=cell, call=cell, inputs=new_inputs, keywords=keywords)
        held = self.held and self.held.of_copy(self.cell, cell, self.held.weights | new_weights)

        def repeated(z: Tensor) -> Tensor:
            with entered(held):
                return f(z)

        return repeated


class Trajectory:
    """A map that keeps the states reached after given numbers of evaluations.

    Raises:
        ValueError: ``record_at`` does not hold increasing integers from 1, or autograd records the
            solver :class:`phantomgrad.Reversible`, whose steps it does not see.
    """

    def __init__(self, f: Map, record_at: Sequence[int], solver: Solver, recorded: bool) -> None:
        check_integers("record_at", record_at)
        if isinstance(solver, Reversible) and recorded:
            raise ValueError(
                "record_at needs a solver whose steps autograd records one by one (FixedPoint, "
                "Steps), or a gradient other than BackpropThroughSolver, got Reversible"
            )
        self._f, self._at = f, tuple(record_at)
        if self._at != tuple(sorted({n for n in self._at if n > 0})):
            raise ValueError(f"record_at must hold increasing integers from 1 on, got {self._at}")
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


def check_cell(cell: nn.Module) -> None:
    """Raise unless ``cell`` is a module that takes its state first."""
    if not isinstance(cell, nn.Module):
        raise TypeError(f"cell must be a torch.nn.Module, got {_kind(cell)}")
    if isinstance(cell, nn.RNNCellBase):
        raise TypeError(f"cell must take its state first, got {_kind(cell)}: wrap it in a module")


def check_parts(solver: Solver | None, gradient: GradientEstimator, together: bool = True) -> None:
    """Raise unless a layer can have these parts, if ``together`` in passes with a gradient."""
    if isinstance(solver, LinearSolver) and not isinstance(solver, Solver):
        raise TypeError(
            "solver must find an equilibrium, as Anderson(), Broyden() and FixedPoint() do, got "
            f"{_kind(solver)}, which solves linear equations only: it is for adjoints, "
            f"ImplicitGradient(solver={_kind(solver)}())"
        )
    for part, kind, name in ((solver, Solver, "solver"), (gradient, GradientEstimator, "gradient")):
        if part is not None and not isinstance(part, kind):
            raise TypeError(
                f"{name} must be a phantomgrad.{kind.__name__} (Broyden() is a solver, "
                f"ImplicitGradient() a gradient), got {_kind(part)}"
            )
    if solver is not None and together:
        gradient.adapt_solver(solver)


def check_sharding(cell: nn.Module, solver: Solver, gradient: GradientEstimator) -> None:
    """Raise if processes that share a cell would wait for one another."""
    ends_early = isinstance(solver, Reversible) or getattr(solver, "tol", 0.0) > 0
    if gradient.needs_recorded_solve and ends_early and is_sharded(cell):
        raise ValueError(
            "a cell that FSDP2 shards is evaluated equally often by all processes, or they hang: "
            "with BackpropThroughSolver use Steps or tol=0, or shard the layer, "
            f"fully_shard(layer), in the place of its cell, got {solver}"
        )


def check_counters(solver: Solver, gradient: GradientEstimator) -> None:
    """Raise unless these parts pass integers in the state on as they are."""
    damping = gradient.damping if isinstance(gradient, PhantomGradient) else 1.0
    if not isinstance(solver, Steps) or solver.damping != 1.0 or damping != 1.0:
        raise ValueError(
            "integers in the state, such as a counter of the steps, have no equilibrium and need "
            f"the solver Steps and no damping, got {solver} and {gradient}"
        )


def default_start(inputs: Sequence[Any]) -> Tensor:
    """Return zeros like the first input."""
    if not inputs or not isinstance(inputs[0], Tensor):
        got = _kind(inputs[0]) if inputs else "none"
        raise ValueError(f"z0 is needed if the first input is not a tensor, got {got}")
    return torch.zeros_like(inputs[0])


def _kind(value: object) -> str:
    """Return what ``value`` is, for an error."""
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


@contextmanager
def explained(note: Callable[[], str]) -> Iterator[None]:
    """Add a note to any exception raised inside, usually by the cell."""
    try:
        yield
    except Exception as error:
        if not torch.compiler.is_compiling():
            error.add_note(note())
        raise


def call_note(cell: nn.Module, z0: Any, inputs: Sequence[Any], keywords: Mapping[str, Any]) -> str:
    """Return what the cell was called with, and the usual mistakes."""
    dtypes = {_dtype(p) for p in cell.parameters()}
    z, given, named = (str(tree_map(_leaf, v)).replace("'", "") for v in (z0, inputs, keywords))
    return (
        f"{type(cell).__name__}, with parameters in {', '.join(sorted(dtypes)) or 'no dtype'}, "
        f"was called as cell(z, *inputs, **keywords) with z: {z}; inputs: {given}; "
        f"keywords: {named}. All keywords go to the cell: to change a setting of the solver for "
        "one call, pass solver=dataclasses.replace(layer.solver, ...). z has the shape of z0, by "
        "default that of the first input, whose width is then that of the state; the cell returns "
        "only the next z. Several states are a tuple z0=(a, b), not their packed solution.z."
    )


def _leaf(value: Any) -> str:
    tensor = isinstance(value, Tensor)
    return f"{_dtype(value)} {tuple(value.shape)}" if tensor else type(value).__name__


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
