"""The cell of a layer as a map of its state alone."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from phantomgrad.checks import check_integers
from phantomgrad.nn import Pass, entered
from phantomgrad.packing import Packing
from phantomgrad.solvers import Map, Reversible, Solution, Solver
from phantomgrad.solvers.base import ParametricMap, per_sample


@dataclass(frozen=True)
class LayerMap(ParametricMap):
    """The cell as a map of its state alone, ``f(z) = cell(z, *inputs, **keywords)``.

    ``z`` is one tensor, packed by ``packing``. A call runs in the current pass; ``held`` is the
    pass whose weights and masks later evaluations must have, see :meth:`with_tensors`.
    """

    cell: nn.Module
    call: Callable[..., Any]
    inputs: Sequence[Any]
    keywords: Mapping[str, Any]
    packing: Packing | None
    held: Pass | None = None

    def __call__(self, z: Tensor) -> Tensor:
        """Return the next state."""
        if self.packing is None:
            fz: Tensor = self.call(z, *self.inputs, **self.keywords)
            return fz
        return self.packing.pack(self.call(self.packing.unpack(z), *self.inputs, **self.keywords))

    def shown(self, z: Tensor) -> Any:
        """Return ``z`` in the structure of the states."""
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
        except TypeError as error:  # of an attribute such as a lock
            raise ValueError(f"the cell must be one that copy.deepcopy copies: {error}") from error
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


@contextmanager
def explained(
    cell: nn.Module, z0: Any, inputs: Sequence[Any], keywords: Mapping[str, Any]
) -> Iterator[None]:
    """Add to an exception raised inside, usually by the cell, what the cell was called with."""
    try:
        yield
    except Exception as error:
        if not torch.compiler.is_compiling():
            error.add_note(_call_note(cell, z0, inputs, keywords))
        raise


def _call_note(cell: nn.Module, z0: Any, inputs: Sequence[Any], keywords: Mapping[str, Any]) -> str:
    dtypes = {_dtype(p) for p in cell.parameters()}
    z, given, named = (
        str(tree_map(_described, v)).replace("'", "") for v in (z0, inputs, keywords)
    )
    return (
        f"{type(cell).__name__}, with parameters in {', '.join(sorted(dtypes)) or 'no dtype'}, "
        f"was called as cell(z, *inputs, **keywords) with z: {z}; inputs: {given}; "
        f"keywords: {named}. z has the shape of z0, by default that of the first input, whose "
        "width is then that of the state; the cell returns only the next z. All keywords go to "
        "the cell: to change a setting of the solver for one call, pass "
        "solver=dataclasses.replace(layer.solver, ...). Several states are a tuple z0=(a, b), not "
        "their packed solution.z."
    )


def _described(value: Any) -> str:
    tensor = isinstance(value, Tensor)
    return f"{_dtype(value)} {tuple(value.shape)}" if tensor else type(value).__name__


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
