"""SolverMonitor in anyone's Trainer."""

import contextlib
import warnings

import lightning
import pytest
import torch
from recorder import trainer
from torch import nn
from torch.utils.data import DataLoader

from phantomgrad import DEQ, FixedPoint, Solution, Steps, UnrolledPhantomGradient
from phantomgrad_suite.callbacks import SolverMonitor
from phantomgrad_suite.callbacks.health import Failures, SolverWarning


class Grows(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.tensor(1.5))

    def forward(self, z, x):
        return self.w * z + x


class Plain(lightning.LightningModule):
    """A module of a user, which knows nothing of this repository's tasks."""

    def __init__(self, solver):
        super().__init__()
        self.deq = DEQ(Grows(), solver, UnrolledPhantomGradient(1, 1.0))
        self.deq.check_map = False

    def training_step(self, batch, _):
        return self.deq(batch).z.square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.0)


@pytest.mark.filterwarnings("ignore:.*does not have many workers", "ignore:.*LeafSpec")
@pytest.mark.parametrize(
    ("solver", "steps", "warns"),
    [
        (FixedPoint(max_evaluations=5), 4, True),
        (FixedPoint(max_evaluations=5), 3, False),
        (Steps(5), 4, False),
    ],
)
def test_a_trainer_of_your_own(solver, steps, warns):
    expected = pytest.warns(SolverWarning, match="the solver of deq has failed 4 times")
    with expected if warns else contextlib.nullcontext():
        trainer(1, callbacks=[SolverMonitor(patience=4)]).fit(
            Plain(solver), DataLoader(torch.ones(2 * steps, 3), batch_size=2)
        )


def solution(residual, converged=None, tol=1e-3):
    r = torch.tensor(residual)
    found = torch.tensor([x < 1e-3 for x in residual] if converged is None else converged).bool()
    return Solution(r, r, torch.ones(len(r), dtype=torch.long), found, ~found, tol=tol)


LOOSE = solution([0.1, 0.2])  # nothing has converged
STUCK = solution([0.0, 0.95, 0.99])
GOOD = solution([0.0, 0.2])
ABSOLUTE = solution([1.5, 1.2, 30.0], [True, True, False])  # below a large absolute tolerance


def warned(patience, solves):
    """The numbers of the solves, from 1, at which there was a warning."""
    failures, found = Failures(patience, 0.9, "the solver"), []
    for number, solve in enumerate(solves, 1):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            failures.count(solve)
        found += [number for w in caught if w.category is SolverWarning]
    return found


@pytest.mark.parametrize("bad", [LOOSE, STUCK, solution([torch.nan]), solution([torch.inf, 0.0])])
def test_consecutive_failures_are_counted(bad):
    assert warned(3, [bad, bad, GOOD, bad, bad]) == []
    assert warned(3, [bad, bad, GOOD, bad, bad, bad]) == [6]
    assert warned(3, [bad] * 7) == [3, 6]  # counted anew
    assert warned(2, [bad, solution([]), bad]) == [3]  # an empty batch says nothing


@pytest.mark.parametrize(
    "good", [GOOD, solution([0.0, 0.1, 0.99]), solution([]), ABSOLUTE, solution([0.5], tol=0)]
)
def test_what_is_no_failure(good):
    """One converged sample is enough, unless half of the others make no progress."""
    assert warned(1, [good] * 3) == []
