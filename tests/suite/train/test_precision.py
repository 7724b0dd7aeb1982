"""Training in other precisions than float32: what runs in which, and what cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from torch import Tensor
from training import Workplace

from phantomgrad.models import MDEQCell
from phantomgrad.solvers.broyden import _UnitSteps
from phantomgrad_suite.runs.errors import UserError

METHODS = ("implicit", "upg_k5_d0.5", "npg_k5_d0.5")


def narrow(root: Path, method: str = "upg_k5_d0.5", batches: int = 1) -> tuple[str, ...]:
    """A narrow MDEQ, without instruments."""
    return (
        *(f"experiment=cifar10-jpeg/3epochs_{method}", f"dataset.root={root}"),
        *("model.channels=[8,8]", "model.head_channels=[2,2]", "model.features=8"),
        *("solver.max_evaluations=4", "adjoint.max_evaluations=4", "dataset.batch_size=4"),
        *("callbacks.spectrum=null", "callbacks.precision=null"),
        *(f"+trainer.limit_train_batches={batches}", "+trainer.limit_val_batches=1"),
    )


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[Any]]:
    """What dtypes, and whether under autocast, the cell and the solvers work in."""
    found: dict[str, set[Any]] = {"cell": set(), "result": set(), "solver": set()}
    forward, direction = MDEQCell.forward, _UnitSteps._direction

    def seen_forward(self: MDEQCell, z: Any, u: Tensor) -> Any:
        found["cell"].add((z[0].dtype, torch.is_autocast_enabled("cpu")))
        result = forward(self, z, u)
        found["result"].add(self.blocks[0].conv1(z[0]).dtype)
        return result

    def seen_direction(self: _UnitSteps, g: Tensor) -> Tensor:
        result = direction(self, g)
        kept = {t.dtype for t in (g, self._slots, self._system, self._scale, result)}
        found["solver"].add((*kept, torch.is_autocast_enabled("cpu")))
        return result

    monkeypatch.setattr(MDEQCell, "forward", seen_forward)
    monkeypatch.setattr(_UnitSteps, "_direction", seen_direction)
    return found


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.filterwarnings("ignore::phantomgrad.AdjointWarning")
def test_mixed_precision_is_for_the_cell_alone(
    workplace: Workplace, jpeg_root: Path, seen: dict[str, set[Any]], method: str
) -> None:
    """f in bfloat16; states, Gram matrices, directions, adjoint in float32; and it learns."""
    settings = ("trainer.precision=bf16-mixed", "model.channels_last=false", "seed=1")
    implicit = ("task.pretraining_steps=0",) if method == "implicit" else ()
    record = workplace.record(*narrow(jpeg_root, method, batches=3), *settings, *implicit)
    assert seen["cell"] == {(torch.float32, True)}
    assert seen["result"] == {torch.bfloat16}
    assert seen["solver"] == {(torch.float32, False)}
    assert record.config["trainer"]["precision"] == "bf16-mixed"
    losses = record.curves["train/loss"]
    assert losses[-1] < losses[0]
    if method == "implicit":
        assert record.solver["adjoint_evaluations"] > 1


@pytest.mark.parametrize("precision", ["16-true", "bf16-true", "64-true"])
def test_whole_models_train_in_another_precision(
    workplace: Workplace, jpeg_root: Path, seen: dict[str, set[Any]], precision: str
) -> None:
    """The solver iterates half-precision states in float32, and double ones in float64."""
    record = workplace.record(
        *narrow(jpeg_root), "trainer.max_epochs=1", f"trainer.precision={precision}"
    )
    dtypes = {"16-true": torch.float16, "bf16-true": torch.bfloat16, "64-true": torch.float64}
    dtype = dtypes[precision]
    assert seen["cell"] == {(dtype, False)}
    books = torch.float64 if precision == "64-true" else torch.float32
    assert seen["solver"] == {(books, False)}
    assert record.config["trainer"]["precision"] == precision
    assert 0 < record.curves["train/loss"][0] < 10


def test_precision_that_there_is_not_is_refused(workplace: Workplace) -> None:
    with pytest.raises(UserError, match="trainer cannot be built: Precision '8' is invalid"):
        workplace.train("trainer.precision='8'")


def test_synchronised_batch_norm_needs_gpus(workplace: Workplace) -> None:
    with pytest.raises(UserError, match=r"trainer\.sync_batchnorm=true needs GPUs, .*=cpu"):
        workplace.train("+trainer.sync_batchnorm=true")


def test_synchronised_batch_norm_reaches_lightning(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine with GPUs, as far as that can be seen without one."""

    class Reached(Exception):
        pass

    def trainer(**options: Any) -> Any:
        raise Reached(options["sync_batchnorm"], options["strategy"])

    monkeypatch.setattr(lightning, "Trainer", trainer)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    with pytest.raises(UserError, match=r"\(True, 'ddp'\)"):
        workplace.train(
            *("trainer=ddp", "trainer.devices=1", "trainer.sync_batchnorm=true"),
            "trainer.accelerator=gpu",
        )


@pytest.mark.parametrize("method", ["implicit", "upg_k5_d0.5", "npg_k5_d0.5"])
def test_graphs_train_in_mixed_precision(workplace: Workplace, method: str) -> None:
    """Sparse products stay in float32, dense ones do not."""
    settings = ("trainer.precision=bf16-mixed", "trainer.max_epochs=3")
    record = workplace.record(f"experiment=chains/{method}", *settings)
    losses = record.curves["train/loss"]
    assert losses[-1] < losses[0]
    assert record.config["trainer"]["precision"] == "bf16-mixed"
