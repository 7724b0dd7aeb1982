"""torchdeq 0.1.0, the peer, behind our own interfaces. This module alone imports it."""

from __future__ import annotations

import importlib.metadata
from typing import Any

from torch import Tensor, nn

from phantomgrad.nn import Packing, shared_parametrizations
from phantomgrad.solvers import Anderson, Broyden, FixedPoint, Map, Solver

MISSING = (
    "torchdeq is not installed, so ours is measured alone: pip install -e '.[bench]' in the "
    "checkout brings the peer"
)


def version() -> str | None:
    """Return the version of torchdeq, ``None`` where it is not installed."""
    try:
        return importlib.metadata.version("torchdeq")
    except importlib.metadata.PackageNotFoundError:
        return None


def solve(solver: Solver, f: Map, z0: Tensor) -> Tensor:
    """Solve with the peer's counterpart of ``solver``, with as many evaluations of ``f``."""
    from torchdeq.solver import get_solver

    z: Tensor
    z, _, _ = get_solver(_name(solver))(
        f, z0, max_iter=_iterations(solver), tol=solver.tol, stop_mode="rel", **_settings(solver)
    )
    return z


class PeerDEQ(nn.Module):
    """A layer of torchdeq that is called as :class:`phantomgrad.DEQ` is.

    It, too, gets parametrized weights that are computed once per forward, and several states
    packed into one.

    Args:
        cell: the map.
        solver: as for our layer; the peer's counterpart is used.
        gradient: ``ift`` and the settings of its solver, or ``grad`` and ``tau``.
    """

    def __init__(self, cell: nn.Module, solver: Solver, gradient: dict[str, Any]) -> None:
        super().__init__()
        self.cell = cell
        self._deq = layer(solver, gradient)

    def forward(self, *inputs: Any, z0: Any) -> tuple[Any, None]:
        """Return the equilibrium, on the graph."""
        packing = None if isinstance(z0, Tensor) else Packing.of(z0)

        def f(z: Tensor) -> Tensor:
            if packing is None:
                return self.cell(z, *inputs)  # type: ignore[no-any-return]
            return packing.pack(self.cell(packing.unpack(z), *inputs))

        with shared_parametrizations(self.cell):
            outputs, _ = self._deq(f, z0 if packing is None else packing.pack(z0))
        z = outputs[-1]
        return z if packing is None else packing.unpack(z), None


def layer(solver: Solver, gradient: dict[str, Any]) -> nn.Module:
    """Return a layer of torchdeq, with the counterpart of ``solver``."""
    from torchdeq import get_deq

    built: nn.Module = get_deq(
        f_solver=_name(solver),
        f_max_iter=_iterations(solver),
        f_tol=solver.tol,
        f_stop_mode="rel",
        **gradient,
    )
    return built


def implicit(solver: Solver) -> dict[str, Any]:
    """Return the peer's settings for implicit differentiation with ``solver``."""
    return {
        "ift": True,
        "b_solver": _name(solver),
        "b_max_iter": _iterations(solver),
        "b_tol": solver.tol,
        "b_stop_mode": "rel",
    }


def unrolled(steps: int, damping: float) -> dict[str, Any]:
    """Return the peer's settings for the unrolled phantom gradient."""
    return {"grad": steps, "tau": damping}


def _name(solver: Solver) -> str:
    names = {FixedPoint: "fixed_point_iter", Anderson: "anderson", Broyden: "broyden"}
    return names[type(solver)]


def _iterations(solver: Solver) -> int:
    """Return ``max_iter``: the peer's Broyden does not count the evaluation at the start."""
    return solver.max_evaluations - isinstance(solver, Broyden)


def _settings(solver: Solver) -> dict[str, Any]:
    return {"m": solver.memory} if isinstance(solver, Anderson) else {}
