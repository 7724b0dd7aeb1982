"""Further steps in evaluation: against a linear map, and on a released model."""

import pytest
import torch

from phantomgrad import FixedPoint, Steps
from phantomgrad_suite.studies import UnrolledEvaluation, unrolling
from phantomgrad_suite.studies.unrolling import Continued

CPU = torch.device("cpu")


def test_steps_continue_from_the_result_of_the_solver():
    """For f(z) = z / 2 + 1 the solver ends at 1.5; half a step leaves 3/4 of the way to 2."""
    start = torch.zeros(2, 1)
    solver = Continued(FixedPoint(max_evaluations=3, tol=0), steps=3, damping=0.5)
    solution = solver.solve(lambda z: z / 2 + 1, start)
    torch.testing.assert_close(solution.z, torch.full((2, 1), 2 - 0.5 * 0.75**3))
    assert solution.evaluations.tolist() == [3, 3]


def test_steps_that_belong_to_a_model_are_not_continued():
    with pytest.raises(ValueError, match="solver must search for an equilibrium, got Steps"):
        Continued(Steps(3), steps=3, damping=0.5)


def test_released_model_is_evaluated_with_more_steps(float32):
    """Without steps it has the recorded accuracy, which five more do not change."""
    study = UnrolledEvaluation(model="digits/upg_k5_d0.5/seed0", steps=(5,))
    findings = study.measure(0, CPU)
    assert [score["steps"] for score in findings.numbers["scores"]] == [0, 5]
    assert findings.numbers["metric"] == "accuracy"
    assert [check.holds for check in findings.checks] == [True, True]


def test_steps_reach_the_model(float32, monkeypatch):
    monkeypatch.setattr(unrolling, "damped_steps", lambda f, z, steps, damping: [0 * z] * steps)
    study = UnrolledEvaluation(model="digits/upg_k5_d0.5/seed0", steps=(5,))
    assert [check.holds for check in study.measure(0, CPU).checks] == [True, False]
