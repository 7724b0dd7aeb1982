"""What a layer returns, and what its errors add to those of a cell."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

from torch import Tensor

from phantomgrad.solvers import Solution


class Equilibrium(NamedTuple):
    """The result of a layer, ``z, solution = layer(x)``.

    It is not a tensor: torch's functions, and those of tensors, raise an error that says so.

    Attributes:
        z: the equilibrium on the graph, in the structure of ``z0``.
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
    "was called on what a DEQ returns, a pair: write z, solution = layer(x), and in an "
    "nn.Sequential use a module of your own that returns layer(x).z"
)


@contextmanager
def noted(write: Callable[[], str]) -> Iterator[None]:
    """Add a note to the errors of a user's function."""
    try:
        yield
    except Exception as error:
        error.add_note(write())
        raise


def call_note(cell: Any, z0: Any, inputs: Sequence[Any], keywords: Mapping[str, Any]) -> str:
    """Return what the cell was called with, and the usual mistakes."""
    parameters = {str(p.dtype).removeprefix("torch.") for p in cell.parameters()}
    given = [*map(_described, inputs), *(f"{k}: {_described(v)}" for k, v in keywords.items())]
    return (
        f"{type(cell).__name__}, with parameters in {', '.join(sorted(parameters)) or 'no dtype'}, "
        f"was called as cell(z, *inputs) with z: {_described(z0)}; inputs: {', '.join(given)}. "
        "z is like z0, by default like the first input, whose width is then that of the state; the "
        "cell returns the next z alone. "
        "Several states are a tuple z0=(a, b), not their packed solution.z."
    )


def _described(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_described, value))})"
    return type(value).__name__
