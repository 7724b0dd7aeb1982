"""Solvers keep full precision under autocast and TF32, whatever ``f`` does."""

from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest
import torch
from methods import SOLVERS, every_solver
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from phantomgrad import GMRES, Reversible
from phantomgrad.precision import full_precision, widest_dtype

CUDA = torch.device("cuda")


def map_without_autocast(z):
    with torch.autocast("cpu", enabled=False):
        weight = 0.9 * torch.eye(z.shape[1], dtype=z.dtype).roll(1, dims=0)
        return torch.tanh(z @ weight + torch.linspace(-1, 1, z.shape[1], dtype=z.dtype))


@every_solver
def test_autocast_changes_nothing_outside_f(solver):
    z0, solver = torch.zeros(2, 16, dtype=torch.float32), replace(solver, max_evaluations=20, tol=0)
    expected = solver.solve(map_without_autocast, z0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        solution = solver.solve(map_without_autocast, z0)
    assert solution.z.dtype == torch.float32
    assert torch.equal(solution.z, expected.z)
    assert torch.equal(solution.residual, expected.residual)


@pytest.fixture
def matmul():
    """Torch's settings of matrix products on CUDA, restored afterwards; it needs no device."""
    yield torch.backends.cuda.matmul
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.fp32_precision = "none"


def test_tf32_is_off_inside_and_restored_after(matmul):
    """Torch's old function or its new attribute sets it; an error restores it too."""
    torch.set_float32_matmul_precision("high")
    with suppress(KeyError), full_precision(CUDA):
        assert (matmul.fp32_precision, matmul.allow_tf32) == ("ieee", False)
        raise KeyError
    assert (matmul.fp32_precision, torch.get_float32_matmul_precision()) == ("tf32", "high")
    torch.set_float32_matmul_precision("highest")
    matmul.fp32_precision = "tf32"
    with full_precision(CUDA):
        assert (matmul.fp32_precision, matmul.allow_tf32) == ("ieee", False)
    assert matmul.fp32_precision == "tf32"


def test_the_setting_of_the_cpu_is_kept(matmul):
    """Torch's old function also changes the setting of oneDNN."""
    onednn = torch.backends.mkldnn.matmul
    before = onednn.fp32_precision
    matmul.fp32_precision, onednn.fp32_precision = "tf32", "bf16"
    try:
        with full_precision(CUDA):
            pass
        assert (matmul.fp32_precision, onednn.fp32_precision) == ("tf32", "bf16")
    finally:
        onednn.fp32_precision = before


def test_other_settings_are_not_changed(matmul):
    before = matmul.fp32_precision
    with full_precision(CUDA):
        assert matmul.fp32_precision == before != "tf32"
    torch.set_float32_matmul_precision("high")
    with full_precision(torch.device("cpu")):
        assert torch.get_float32_matmul_precision() == "high"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_graph_may_hold_it():
    """A compiler can trace autocast, but not the settings of TF32."""

    @partial(torch.compile, backend="eager", fullgraph=True)
    def square(x, device):
        with full_precision(device):
            return x @ x

    x = torch.full((2, 2), 1 + 2**-9, dtype=torch.float32)
    for device in (CUDA, x.device):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=device == x.device):
            assert torch.equal(square(x, device), torch.full_like(x, 2 * (1 + 2**-9) ** 2))


class NoFloat64(TorchDispatchMode):
    """Refuses what MPS refuses."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        if any(isinstance(t, Tensor) and t.dtype == torch.float64 for t in tree_leaves(out)):
            raise TypeError(f"{function} makes a tensor in float64")
        return out


def test_every_solver_works_where_there_is_no_float64(monkeypatch):
    assert widest_dtype(torch.device("mps")) == torch.float32
    for module in ("anderson", "gmres", "reversible"):
        monkeypatch.setattr(f"phantomgrad.solvers.{module}.widest_dtype", lambda _: torch.float32)
    z0, weight = (
        torch.zeros(2, 3, dtype=torch.float32),
        torch.eye(3, dtype=torch.float32).roll(1, 0),
    )
    with NoFloat64(), torch.no_grad():
        for solver in (*SOLVERS.values(), Reversible()):
            assert solver.solve(lambda z: torch.tanh(z @ weight / 2 + 1), z0).converged.all()
        assert GMRES().solve_linear(lambda u: u @ weight / 2, z0 + weight[:2]).converged.all()
