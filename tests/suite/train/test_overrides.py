"""Which overrides make a run another one than its row: those that change it."""

from __future__ import annotations

import pytest
from train.chains import ROW, shorten
from training import Workplace, composed

from phantomgrad_suite.jobs.compose import as_dict
from phantomgrad_suite.jobs.compose import identity_of
from phantomgrad_suite.runs.identity import Identity

pytestmark = pytest.mark.usefixtures("workplace")
CIFAR = "experiment=table1/upg_k9_d0.5"
TEXT = "experiment=wikitext/postln_implicit"


def identity(*overrides: str) -> Identity:
    from hydra.core.hydra_config import HydraConfig

    config = as_dict(composed(list(overrides)))
    return identify(config, HydraConfig.get().runtime.choices["experiment"], list(overrides))


@pytest.mark.parametrize(
    "same",
    [
        ("trainer.num_nodes=1",),
        ("trainer.devices=1", "trainer.num_nodes=1"),
        ("gradient=upg", "gradient.steps=5", "gradient.damping=0.5"),
        ("solver@adjoint=ignn_adjoint",),
        ("trainer.max_epochs=300", "++optimizer.lr=1e-2"),
        ("label.method='UPG A(5, 0.5)'", "reduced=['300 of the official 2000 epochs']"),
    ],
)
def test_override_that_says_what_the_row_says_is_no_change(same: tuple[str, ...]) -> None:
    plain = identity(ROW)
    assert identity(ROW, *same) == plain
    assert plain.instance == "seed0"


@pytest.mark.parametrize("other", ["trainer.num_nodes=2", "trainer.devices=2", "optimizer.lr=0.5"])
def test_what_differs_alone_is_listed(other: str) -> None:
    found = identity(ROW, "gradient.steps=5", other, "trainer.precision=32-true")
    assert found.changes == (other,)
    assert found == Identity.of(as_dict(composed([ROW, other])), "chains/upg_k5_d0.5", [other])


def test_override_below_another_choice_is_listed() -> None:
    """As the row has it, but not as the choice has it."""
    both = ("gradient=npg", "gradient.steps=5")
    assert identity(ROW, *both).changes == both


@pytest.mark.parametrize("more", [(), ("optimizer.lr=0.5",)])
@pytest.mark.parametrize("free", ["dataset.test_batch_size=64", "+trainer.benchmark=true"])
def test_batches_and_kernels_of_images_are_circumstances(free: str, more: tuple[str, ...]) -> None:
    assert identity(CIFAR, free, *more) == identity(CIFAR, *more)


def test_number_of_streams_is_no_circumstance() -> None:
    """Each begins without context."""
    override = "dataset.test_batch_size=8"
    assert identity(TEXT, override).changes == (override,)


def test_sweep_is_compared_with_what_it_sweeps() -> None:
    plain = identity("table=table1_jpeg", "experiment=table1/implicit", "dataset=cifar10_jpeg")
    assert plain.row == "cifar10-jpeg/table1/implicit"
    swept = ("table=table1_jpeg", "experiment=table1/implicit", "dataset=cifar10_jpeg")
    assert identity(*swept, "dataset.name=cifar10-jpeg", "trainer.devices=1") == plain
    assert identity(*swept, "dataset.name=cifar10").changes == ("dataset.name=cifar10",)


def test_run_without_a_row_keeps_its_overrides() -> None:
    found = identify(as_dict(composed(["gradient=implicit"])), None, ["gradient=implicit"])
    assert (found.row, found.changes) == ("custom", ("gradient=implicit",))


def test_record_of_a_run_with_its_own_settings_said_again_is_the_row_s(
    workplace: Workplace,
) -> None:
    shorten(workplace, 2)
    record = workplace.record(ROW, "trainer.max_epochs=2", "trainer.num_nodes=1")
    assert record.changes == record.config["reduced"]
    assert record.instance == "seed0"
    assert (workplace.path / "results/records" / record.row / "seed0.json").exists()
