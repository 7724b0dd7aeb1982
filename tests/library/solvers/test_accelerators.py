"""Solvers keep full precision under autocast and TF32, whatever ``f`` does."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import torch
from methods import every_solver
from torch import Tensor

from phantomgrad import Solver
from phantomgrad.solvers.accelerators import full_precision

CUDA = torch.device("cuda")


def map_without_autocast(z: Tensor) -> Tensor:
    with torch.autocast("cpu", enabled=False):
        weight = 0.9 * torch.eye(z.shape[1], dtype=z.dtype).roll(1, dims=0)
        return torch.tanh(z @ weight + torch.linspace(-1, 1, z.shape[1], dtype=z.dtype))


@every_solver
def test_autocast_changes_nothing_outside_f(solver: Solver) -> None:
    z0, solver = torch.zeros(2, 16, dtype=torch.float32), replace(solver, max_evaluations=20, tol=0)
    expected = solver.solve(map_without_autocast, z0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        solution = solver.solve(map_without_autocast, z0)
    assert solution.z.dtype == torch.float32
    assert torch.equal(solution.z, expected.z)
    assert torch.equal(solution.residual, expected.residual)


@pytest.fixture
def matmul() -> Iterator[Any]:
    """Torch's settings of matrix products on CUDA, restored afterwards; it needs no device."""
    yield torch.backends.cuda.matmul
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.fp32_precision = "none"


def test_tf32_is_off_inside_and_restored_after(matmul: Any) -> None:
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


def test_the_setting_of_the_cpu_is_kept(matmul: Any) -> None:
    """Torch's old function also changes the setting of oneDNN."""
    onednn: Any = torch.backends.mkldnn.matmul
    before = onednn.fp32_precision
    matmul.fp32_precision, onednn.fp32_precision = "tf32", "bf16"
    try:
        with full_precision(CUDA):
            pass
        assert (matmul.fp32_precision, onednn.fp32_precision) == ("tf32", "bf16")
    finally:
        onednn.fp32_precision = before


def test_other_settings_are_not_changed(matmul: Any) -> None:
    before = matmul.fp32_precision
    with full_precision(CUDA):
        assert matmul.fp32_precision == before != "tf32"
    torch.set_float32_matmul_precision("high")
    with full_precision(torch.device("cpu")):
        assert torch.get_float32_matmul_precision() == "high"
