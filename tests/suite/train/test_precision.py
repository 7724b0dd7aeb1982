"""Training in other precisions than float32: which part runs in which, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from torch import Tensor
from training import Workplace

from phantomgrad import DEQ
from phantomgrad.models import MDEQCell
from phantomgrad_suite.runs.errors import UserError

METHODS = ("implicit", "upg_k5_d0.5", "npg_k5_d0.5")
Seen = dict[str, set[Any]]


def narrow(root: Path, method: str, batches: int = 1) -> tuple[str, ...]:
    """A narrow MDEQ, a few batches, no measurements."""
    return (
        *(f"experiment=cifar10-jpeg/3epochs_{method}", f"dataset.root={root}"),
        *("model.channels=[8,8]", "model.head_channels=[2,2]", "model.features=8"),
        *("solver.max_evaluations=4", "adjoint.max_evaluations=4", "dataset.batch_size=4"),
        *("callbacks.spectrum=null", "callbacks.precision=null"),
        *(f"+trainer.limit_train_batches={batches}", "+trainer.limit_val_batches=1"),
    )


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """The dtypes of states, of convolutions and of the solver's residuals."""
    found: Seen = {"state": set(), "convolution": set(), "solver": set()}
    cell, layer = MDEQCell.forward, DEQ.forward

    def seen_cell(self: MDEQCell, z: Any, u: Tensor) -> Any:
        found["state"].add(z[0].dtype)
        found["convolution"].add(self.blocks[0].conv1(z[0]).dtype)
        return cell(self, z, u)

    def seen_layer(self: DEQ, *inputs: Any, **options: Any) -> Any:
        z, solution = layer(self, *inputs, **options)
        found["solver"].add(solution.residual.dtype)
        return z, solution

    monkeypatch.setattr(MDEQCell, "forward", seen_cell)
    monkeypatch.setattr(DEQ, "forward", seen_layer)
    return found


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.filterwarnings("ignore::phantomgrad.AdjointWarning")
def test_mixed_precision_is_for_the_cell_alone(
    workplace: Workplace, jpeg_root: Path, seen: Seen, method: str
) -> None:
    """It computes in bfloat16, states and solver stay in float32; and the model learns."""
    settings = ("trainer.precision=bf16-mixed", "model.channels_last=false", "seed=1")
    implicit = ("task.pretraining_steps=0",) if method == "implicit" else ()
    record = workplace.record(*narrow(jpeg_root, method, batches=3), *settings, *implicit)
    assert seen == {
        "state": {torch.float32},
        "convolution": {torch.bfloat16},
        "solver": {torch.float32},
    }
    losses = record.curves["train/loss"]
    assert losses[-1] < losses[0]
    if method == "implicit":
        assert record.solver["adjoint_evaluations"] > 1


@pytest.mark.parametrize(
    ("precision", "dtype", "solver"),
    [
        ("16-true", torch.float16, torch.float32),
        ("bf16-true", torch.bfloat16, torch.float32),
        ("64-true", torch.float64, torch.float64),
    ],
)
def test_whole_models_train_in_another_precision(
    workplace: Workplace,
    jpeg_root: Path,
    seen: Seen,
    precision: str,
    dtype: torch.dtype,
    solver: torch.dtype,
) -> None:
    """The solver works in float32 at least."""
    settings = ("trainer.max_epochs=1", f"trainer.precision={precision}")
    record = workplace.record(*narrow(jpeg_root, "upg_k5_d0.5"), *settings)
    assert seen == {"state": {dtype}, "convolution": {dtype}, "solver": {solver}}
    assert 0 < record.curves["train/loss"][0] < 10


@pytest.mark.parametrize("method", METHODS)
def test_graphs_train_in_mixed_precision(workplace: Workplace, method: str) -> None:
    settings = ("trainer.precision=bf16-mixed", "trainer.max_epochs=3")
    record = workplace.record(f"experiment=chains/{method}", *settings)
    losses = record.curves["train/loss"]
    assert losses[-1] < losses[0]
    assert record.config["trainer"]["precision"] == "bf16-mixed"


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("trainer.precision='8'", "trainer cannot be built: Precision '8' is invalid"),
        ("+trainer.sync_batchnorm=true", r"trainer\.sync_batchnorm=true needs GPUs, .*=cpu"),
    ],
)
def test_impossible_settings_are_refused(workplace: Workplace, setting: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        workplace.train(setting)


def test_synchronised_batch_norm_reaches_lightning(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a GPU that is only pretended."""

    def trainer(**options: Any) -> Any:
        raise ValueError(options["sync_batchnorm"], options["strategy"])

    monkeypatch.setattr(lightning, "Trainer", trainer)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    settings = ("trainer=ddp", "trainer.devices=1", "trainer.accelerator=gpu")
    with pytest.raises(UserError, match=r"\(True, 'ddp'\)"):
        workplace.train(*settings, "trainer.sync_batchnorm=true")
