"""Under autocast, or with TF32, ``f`` may run in low precision; the solver itself must not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from phantomgrad import Anderson, Broyden, FixedPoint, Solver
from phantomgrad.solvers.arithmetic import own_arithmetic


def full_precision(z: Tensor) -> Tensor:
    with torch.autocast("cpu", enabled=False):
        weight = 0.9 * torch.eye(z.shape[1], dtype=z.dtype).roll(1, dims=0)
        return torch.tanh(z @ weight + torch.linspace(-1, 1, z.shape[1], dtype=z.dtype))


@pytest.mark.parametrize(
    "solver",
    [
        FixedPoint(max_evaluations=60, tol=0),
        Anderson(max_evaluations=20, tol=0),
        Broyden(max_evaluations=20, tol=0),
        Broyden(max_evaluations=20, tol=0, line_search=True),
    ],
    ids=repr,
)
def test_autocast_changes_nothing_outside_f(solver: Solver) -> None:
    """With an f that opts out of autocast, the solve is the one without autocast, bit by bit."""
    z0 = torch.zeros(2, 16, dtype=torch.float32)
    expected = solver.solve(full_precision, z0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        solution = solver.solve(full_precision, z0)
    assert solution.z.dtype == torch.float32
    assert torch.equal(solution.z, expected.z)
    assert torch.equal(solution.residual, expected.residual)


@pytest.fixture
def matmul() -> Iterator[Any]:
    """torch's settings of products on CUDA, which are put back; a device need not be there."""
    yield torch.backends.cuda.matmul
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.fp32_precision = "none"


def test_tf32_is_off_within_and_on_behind(matmul: Any) -> None:
    """However it was asked for, by the old setting or the new one."""
    torch.set_float32_matmul_precision("high")
    with own_arithmetic(torch.device("cuda")):
        assert (matmul.fp32_precision, matmul.allow_tf32) == ("ieee", False)
    assert (matmul.fp32_precision, torch.get_float32_matmul_precision()) == ("tf32", "high")
    torch.set_float32_matmul_precision("highest")
    matmul.fp32_precision = "tf32"
    with own_arithmetic(torch.device("cuda")):
        assert (matmul.fp32_precision, matmul.allow_tf32) == ("ieee", False)
    assert matmul.fp32_precision == "tf32"


def test_tf32_returns_behind_an_error(matmul: Any) -> None:
    torch.set_float32_matmul_precision("medium")
    with pytest.raises(KeyError), own_arithmetic(torch.device("cuda")):
        raise KeyError
    assert torch.get_float32_matmul_precision() == "medium"


def test_what_is_asked_of_the_cpu_stays(matmul: Any) -> None:
    """The old setting is one for all devices."""
    onednn: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before = onednn.fp32_precision
    matmul.fp32_precision, onednn.fp32_precision = "tf32", "bf16"
    try:
        with own_arithmetic(torch.device("cuda")):
            pass
        assert (matmul.fp32_precision, onednn.fp32_precision) == ("tf32", "bf16")
    finally:
        onednn.fp32_precision = before


def test_other_devices_and_settings_are_left_alone(matmul: Any) -> None:
    before = matmul.fp32_precision
    with own_arithmetic(torch.device("cuda")):
        assert matmul.fp32_precision == before != "tf32"
    torch.set_float32_matmul_precision("high")
    with own_arithmetic(torch.device("cpu")):
        assert torch.get_float32_matmul_precision() == "high"
