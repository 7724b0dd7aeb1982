"""Training in other precisions than float32 and in several processes, and what is refused."""

import pytest
import torch
from training import SMALL_MDEQ

from phantomgrad import DEQ
from phantomgrad.models import MDEQCell

NARROW = (
    *SMALL_MDEQ,
    *("solver.max_evaluations=4", "adjoint.max_evaluations=4", "dataset.batch_size=4", "seed=1"),
    *("runtime.callbacks.spectrum=null", "measure.precision=null", "task.pretraining_steps=0"),
    *("trainer.max_epochs=2", "+trainer.limit_train_batches=2", "+trainer.limit_val_batches=1"),
    "runtime.dataset.test_batch_size=4",  # CPUs convolve slowly in float16
)


@pytest.fixture
def seen(monkeypatch):
    """The dtypes of states, of convolutions and of the solver's residuals."""
    found = {"state": set(), "convolution": set(), "solver": set()}
    cell, layer = MDEQCell.forward, DEQ.forward

    def seen_cell(self, z, u):
        found["state"].add(z[0].dtype)
        found["convolution"].add(self.blocks[0].conv1(z[0]).dtype)
        return cell(self, z, u)

    def seen_layer(self, *inputs, **options):
        z, solution = layer(self, *inputs, **options)
        found["solver"].add(solution.residual.dtype)
        return z, solution

    monkeypatch.setattr(MDEQCell, "forward", seen_cell)
    monkeypatch.setattr(DEQ, "forward", seen_layer)
    return found


@pytest.mark.parametrize(
    ("method", "precision", "state", "convolution", "solver"),
    [
        ("implicit", "bf16-mixed", torch.float32, torch.bfloat16, torch.float32),
        ("upg_k5_d0.5", "16-true", torch.float16, torch.float16, torch.float32),
        ("upg_k5_d0.5", "64-true", torch.float64, torch.float64, torch.float64),
    ],
)
@pytest.mark.filterwarnings("ignore::phantomgrad.AdjointWarning")
def test_model_trains_in_another_precision(
    workplace, seen, method, precision, state, convolution, solver
):
    """Mixed precision is for the cell alone; the solver works in float32 at least."""
    row = f"experiment=figure2/cifar10_{method}"
    settings = ("dataset=cifar10_8x8", f"trainer.precision={precision}")
    record = workplace.record(row, *NARROW, *settings, "++model.channels_last=false")
    assert seen == {"state": {state}, "convolution": {convolution}, "solver": {solver}}
    assert all(0 < loss < 10 for loss in record.curves["train/loss"])
    if method == "implicit":
        assert record.solver["adjoint_evaluations"] > 1
