"""The result of a layer, and the notes that it adds to errors raised by its cell."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from phantomgrad.solvers import Solution
from phantomgrad.solvers.context import may_read
from phantomgrad.solvers.maps import per_sample


class Equilibrium(NamedTuple):
    """The result of a layer, ``z, solution = layer(x)``; its use as a tensor is an error.

    Attributes:
        z: the equilibrium on the graph, in the structure of ``z0``; with ``record_at``, a tuple of
            states with the equilibrium last.
        solution: the report of the solver, whose ``z`` is off the graph.
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


def _refuse(*_: Any) -> NoReturn:
    raise TypeError(f"An operator {_PAIR}")


for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "matmul", "neg"):
    setattr(Equilibrium, f"__{_name}__", _refuse)  # a tuple's own + and * join and repeat


def invalidated(solution: Solution) -> Solution:
    """Set samples without a finite evaluation, whose state is only the start, to ``nan``."""
    failed = solution.residual == torch.inf
    if may_read(failed.device) and not failed.any():
        return solution
    z = torch.where(per_sample(failed, solution.z), torch.nan, solution.z)
    return solution._replace(z=z)


def without_state(solution: Solution) -> Solution:
    """Return ``solution`` without its tensors of the size of the state."""
    return solution._replace(z=solution.z.new_empty(0), inverse=None)


@contextmanager
def explained(note: Callable[[], str]) -> Iterator[None]:
    """Add a note to any exception raised inside, usually by a user's function."""
    try:
        yield
    except Exception as error:
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
