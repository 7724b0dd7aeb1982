"""SolverHealth in anyone's Trainer, and in a run, which it does not change."""

import contextlib
import warnings
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from interruptions import checkpoint, untimed
from torch import Tensor, nn
from torch.utils.data import DataLoader
from training import Workplace

from phantomgrad import DEQ, FixedPoint, Solver, SolverWarning, Steps, UnrolledPhantomGradient
from phantomgrad_suite.callbacks import SolverHealth
from phantomgrad_suite.runs.records import read_record


class Grows(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(1.5))

    def forward(self, z: Tensor, x: Tensor) -> Tensor:
        return self.w * z + x


class Plain(lightning.LightningModule):
    """A module of a user, which knows nothing of this repository's tasks."""

    def __init__(self, solver: Solver) -> None:
        super().__init__()
        self.deq = DEQ(Grows(), solver, UnrolledPhantomGradient(1, 1.0))
        self.deq.check_map = False

    def training_step(self, batch: Tensor, _: int) -> Tensor:
        return self.deq(batch).z.square().mean()

    def configure_optimizers(self) -> Any:
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
def test_a_trainer_of_your_own(solver: Solver, steps: int, warns: bool, tmp_path: Path) -> None:
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        default_root_dir=tmp_path,
        callbacks=[SolverHealth(patience=4)],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    expected: Any = pytest.warns(SolverWarning, match="the solver of deq has failed 4 times")
    with expected if warns else contextlib.nullcontext():
        trainer.fit(Plain(solver), DataLoader(torch.ones(2 * steps, 3), batch_size=2))


def test_it_changes_no_number_of_a_run(workplace: Workplace) -> None:
    """Also in a run of which no solve converges, and which it warns of."""
    run = (
        *(
            "experiment=chains/upg_k5_d0.5",
            "trainer.max_epochs=3",
            "runtime.checkpoint.every_n_epochs=1",
        ),
        *("solver.max_evaluations=2", "runtime.callbacks.spectrum=null"),
    )
    off = workplace.train(*run, "runtime.callbacks.health=null", "runtime.paths.runs=off")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        on = workplace.train(*run, "runtime.callbacks.health.patience=2", "runtime.paths.runs=on")
    assert any(w.category is SolverWarning for w in caught)
    for name, value in checkpoint(off)["state_dict"].items():
        assert torch.equal(value, checkpoint(on)["state_dict"][name])
    records = [read_record(folder / "record.json") for folder in (off, on)]
    assert untimed(records[0]) == untimed(records[1])
    assert records[0].config_hash == records[1].config_hash
