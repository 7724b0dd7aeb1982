"""Released models in evaluation, with further damped steps after each solve."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from phantomgrad.gradients.phantom import damped_steps
from phantomgrad.solvers import Map, Solution, Solver
from phantomgrad_suite.jobs.build import prepare
from phantomgrad_suite.jobs.trained import configuration, evaluate, read_released
from phantomgrad_suite.runs.metrics import metric_of
from phantomgrad_suite.runs.records import Check
from phantomgrad_suite.studies.base import Findings, Study, rounded

_SAME = 1e-5  # relative, as in verify; less than one of 50,000 test images
_MARGIN = 1.0  # point, as of the claims


@dataclass(frozen=True)
class Continued(Solver):
    """A solver, and ``steps`` damped steps from its result."""

    solver: Solver
    steps: int
    damping: float

    def __post_init__(self) -> None:
        if self.solver.fixed_length:  # its steps are part of the model, and so is their number
            name = type(self.solver).__name__
            raise ValueError(f"solver must search for an equilibrium, got {name}")

    def solve(self, f: Map, z0: Tensor) -> Solution:
        """Return the solution, whose ``z`` is that after the steps."""
        solution = self.solver.solve(f, z0)
        z = solution.z
        for step in damped_steps(f, z, self.steps, self.damping):
            z = step
        return solution._replace(z=z)


@dataclass(frozen=True, kw_only=True)
class UnrolledEvaluation(Study):
    """The test metric of a released ``model`` with k damped steps from each equilibrium.

    UPG trains with these steps, and evaluation leaves them out. By the paper that loses nothing,
    and more of them gain nothing, as the solver has converged (Geng et al., 2021, appendix on the
    algorithm). ``data`` is the folder of the data sets.
    """

    model: str
    steps: Sequence[int] = (5, 10, 20)
    damping: float = 0.5
    data: str = "data"

    def measure(self, seed: int, device: torch.device) -> Findings:
        record, weights, _ = read_released(self.model)
        config = configuration(record, Path(self.data))
        config.runtime.trainer.accelerator = "cpu" if device.type == "cpu" else "gpu"
        config.runtime.threads = torch.get_num_threads()
        data, own, last = prepare(config), config.solver, record.weights["last"]["step"]
        metric, scores = metric_of(record.result.metric), {}
        for k in (0, *self.steps):
            config.solver = {
                "_target_": f"{__name__}.Continued",
                "solver": own,
                "steps": k,
                "damping": self.damping,
            }
            scores[k] = evaluate(config, data, weights, last, last)[metric.curve]
        off = abs(scores[0] / record.result.last - 1)
        change = metric.scale * max(abs(scores[k] - scores[0]) for k in self.steps)
        checks = [
            Check.below("difference from the recorded value without further steps", off, _SAME),
            Check.below("largest change by further steps, in points", rounded(change), _MARGIN),
        ]
        found = [{"steps": k, "value": rounded(score)} for k, score in scores.items()]
        return Findings({"metric": metric.key, "scores": found}, checks)
