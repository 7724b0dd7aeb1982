"""The question "is any sample still active?"."""

from __future__ import annotations

import pytest
import torch

from phantomgrad import FixedPoint
from phantomgrad.solvers.flags import ActivityFlag

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def test_on_the_cpu_the_answer_is_immediate() -> None:
    """No lag where reading a flag costs nothing."""
    flag = ActivityFlag(torch.device("cpu"))
    answers = [flag.any(torch.tensor(row)) for row in ([True, False], [False, False], [True, True])]
    assert answers == [True, False, True]


def test_an_empty_batch_is_not_active() -> None:
    """Nothing to solve ends at once."""
    assert not ActivityFlag(torch.device("cpu")).any(torch.zeros(0, dtype=torch.bool))


@needs_cuda
def test_on_cuda_the_answer_is_that_of_lag_questions_ago() -> None:
    """The first ``lag`` answers are yes; then each is the truth of ``lag`` questions before."""
    flag = ActivityFlag(torch.device("cuda"), lag=2)
    truths = [True, False, True, False, False]
    answers = [flag.any(torch.tensor([truth], device="cuda")) for truth in truths]
    assert answers == [True, True, *truths[:3]]


@needs_cuda
def test_on_cuda_a_late_answer_changes_no_result() -> None:
    """Samples that have stopped are frozen: result and counts are those of the CPU."""
    f = lambda z: 0.5 * z + 1  # noqa: E731
    solver = FixedPoint(tol=1e-6)
    host = solver.solve(f, torch.zeros(4, 3))
    device = solver.solve(f, torch.zeros(4, 3, device="cuda"))
    assert torch.equal(device.evaluations.cpu(), host.evaluations)
    torch.testing.assert_close(device.z.cpu(), host.z, rtol=1e-14, atol=1e-14)
