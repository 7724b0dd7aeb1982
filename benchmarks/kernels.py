"""What a solver adds to an evaluation of f: operations in eager mode, kernels in one graph.

    OMP_NUM_THREADS=1 python benchmarks/kernels.py

Eager mode: a GPU launches at least one kernel for each operation, except for views. Solvers take
the path that they take on a GPU, where reading a number would wait for the device.

One graph: with ``layer.fullgraph = True`` and ``torch.compile(layer, fullgraph=True)`` a whole
solve is one graph, whose operations Inductor fuses. Counted are the kernels that it makes for the
CPU, so no GPU is needed.

Each number is for one evaluation, without f, which is a single product. It is taken from two solves
of different budgets, so the fixed costs of a pass do not count.
"""

import re
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pandas as pd
import torch
from torch import Tensor, nn
from torch._inductor.utils import run_and_get_code
from torch.utils._python_dispatch import TorchDispatchMode

import phantomgrad as pg
from phantomgrad.solvers import IterativeSolver

MODULES = "iterative", "anderson", "broyden"
BUDGETS = 8, 12  # above the memory of Anderson
SOLVERS = pg.FixedPoint(), pg.Anderson(), pg.Broyden()
CALL = re.compile(r"^ +(?:buf\d+ = )?(cpp_fused|extern_kernels\.|torch\.ops\.aten)", re.MULTILINE)


class Cell(nn.Linear):
    """A map that is one product, with which nothing is fused."""

    def forward(self, z: Tensor, x: Tensor) -> Tensor:
        return super().forward(z)


class Operations(TorchDispatchMode):
    """Counts operations that are no views."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += not func.is_view
        return func(*args, **kwargs or {})


def layer(solver: IterativeSolver, budget: int) -> pg.DEQ:
    """Return a layer that spends this budget."""
    solver = replace(solver, max_evaluations=budget, tol=0)
    made = pg.DEQ(Cell(16, 16), solver, pg.UnrolledPhantomGradient(1, 1.0))
    made.check_map, made.fullgraph = False, True
    return made


@torch.no_grad()
def operations(solver: IterativeSolver, budget: int) -> int:
    """Return the operations of a pass in eager mode, as on a GPU."""
    with ExitStack() as stack:
        for module in MODULES:
            place = f"phantomgrad.solvers.{module}.cheap_to_read"
            stack.enter_context(patch(place, return_value=False))
        counted = stack.enter_context(Operations())
        layer(solver, budget)(torch.ones(8, 16))
    return counted.count


@torch.no_grad()
def kernels(solver: IterativeSolver, budget: int) -> int:
    """Return the kernels that the graph of a pass calls."""
    torch.compiler.reset()
    compiled = torch.compile(layer(solver, budget), fullgraph=True)
    _, (code, *_) = run_and_get_code(compiled, torch.ones(8, 16))
    return len(CALL.findall(code[code.index("def call") :]))


def main() -> None:
    """Print a line for each solver."""
    few, many = BUDGETS
    lines = []
    for solver in SOLVERS:
        spent = {
            count.__name__: (count(solver, many) - count(solver, few)) / (many - few) - 1
            for count in (operations, kernels)
        }
        lines.append({"solver": type(solver).__name__, **spent})
    print(pd.DataFrame(lines).to_markdown(index=False))


if __name__ == "__main__":
    main()
