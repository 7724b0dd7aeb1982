"""SolverMonitor in anyone's Trainer."""

import contextlib

import lightning
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from phantomgrad import DEQ, FixedPoint, SolverWarning, Steps, UnrolledPhantomGradient
from phantomgrad_suite.callbacks import SolverMonitor


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
        (FixedPoint(max_evaluations=5, tol=0), 4, False),
        (Steps(5), 4, False),
    ],
)
def test_a_trainer_of_your_own(solver, steps, warns, tmp_path):
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        default_root_dir=tmp_path,
        callbacks=[SolverMonitor(patience=4)],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    expected = pytest.warns(SolverWarning, match="the solver of deq has failed 4 times")
    with expected if warns else contextlib.nullcontext():
        trainer.fit(Plain(solver), DataLoader(torch.ones(2 * steps, 3), batch_size=2))
