"""The flag that tells whether any sample is still active."""

from __future__ import annotations

import pytest
import torch

from phantomgrad import FixedPoint
from phantomgrad.solvers.activity import ActivityFlag

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def test_on_the_cpu_the_answer_is_immediate() -> None:
    flag = ActivityFlag(torch.device("cpu"))
    rows: list[list[bool]] = [[True, False], [False, False], [True, True], []]
    answers = [flag.any(torch.tensor(row, dtype=torch.bool)) for row in rows]
    assert answers == [True, False, True, False]


@needs_cuda
def test_on_cuda_the_answer_is_that_of_lag_questions_ago() -> None:
    """The first ``lag`` answers are yes."""
    flag = ActivityFlag(torch.device("cuda"), lag=2)
    truths = [True, False, True, False, False]
    answers = [flag.any(torch.tensor([truth], device="cuda")) for truth in truths]
    assert answers == [True, True, *truths[:3]]


@needs_cuda
def test_on_cuda_a_late_answer_changes_no_result() -> None:
    f = lambda z: 0.5 * z + 1  # noqa: E731
    solver = FixedPoint(tol=1e-6)
    host = solver.solve(f, torch.zeros(4, 3))
    device = solver.solve(f, torch.zeros(4, 3, device="cuda"))
    assert torch.equal(device.evaluations.cpu(), host.evaluations)
    torch.testing.assert_close(device.z.cpu(), host.z, rtol=1e-14, atol=1e-14)
