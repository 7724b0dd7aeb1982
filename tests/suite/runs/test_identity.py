"""Identity: which settings make a run another one, and what its folder and record are called."""

from unittest.mock import Mock

import pytest
from filelock import FileLock
from omegaconf import OmegaConf
from train.chains import CHAINS, ROW
from training import composed

from phantomgrad_suite.jobs.compose import as_dict, identity_of, recorded
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.identity import difference, hash_config, identify

CIFAR = "experiment=table1/upg_k9_d0.5"
TEXT = "experiment=table3/wikitext103_postln_implicit"


def identity(*overrides):
    return identity_of(composed(list(overrides)))


def config(**settings):
    return {"seed": 0, "label": {"row": "t/row"}, "runtime": {"workers": 2}, **settings}


def test_instance_has_seed_fold_and_hash_of_a_changed_configuration():
    row = config(dataset={"fold": 3}, solver={"tol": 1.0})
    changed = {**row, "solver": {"tol": 2.0}}
    assert identify(row, row).instance == "seed0-fold3"
    found = identify(changed, row)
    assert found.instance == f"seed0-fold3-tol_2.0-{hash_config(changed)[:6]}"
    assert found.is_changed
    assert not identify(row, row).is_changed
    assert (found.row, found.changes) == ("t/row", ("solver.tol=2.0",))
    assert identify({**row, "label": {"row": None}}, None).row == "custom"


def test_difference_lists_settings_and_objects_of_another_class():
    old = config(solver={"tol": 1, "old": 3}, g={"_target_": "m.Old", "x": 1})
    new = config(
        solver={"tol": 2}, g={"_target_": "m.New", "k": 5, "s": {"_target_": "m.S", "n": 1}}
    )
    assert difference(new, old) == ["g=New(k=5, s=S(n=1))", "solver.old=<not set>", "solver.tol=2"]


@pytest.mark.usefixtures("workplace")
def test_a_section_that_others_use_stands_once():
    """So that a change is listed once, and a value is read in one place."""
    overrides = ["experiment=digits/implicit", "adjoint.tol=0.05"]
    found = recorded(composed(overrides))
    assert found["model"]["gradient"] == "${gradient}"
    assert found["gradient"]["solver"] == "${adjoint}"
    assert found["schedule"]["T_max"] == 15
    assert found["adjoint"]["tol"] == 0.05
    assert identity(*overrides).changes == ("adjoint.tol=0.05",)
    assert found["label"]["method"] == "Implicit"
    rebuilt = as_dict(OmegaConf.create(found))
    assert rebuilt["model"]["gradient"]["solver"]["tol"] == 0.05


def test_numbers_of_another_type_are_changes_as_their_hashes_differ():
    one, other = config(optimizer={"lr": 1.0}), config(optimizer={"lr": 1})
    assert hash_config(one) != hash_config(other)
    assert identify(other, one).changes == ("optimizer.lr=1",)


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize(
    ("row", "overrides", "changes"),
    [
        (ROW, "trainer.devices=2", ("trainer.devices=2",)),  # a larger batch
        (ROW, "gradient=npg", ("gradient=NeumannPhantomGradient(steps=5, damping=0.5)",)),
        (TEXT, "dataset.test_batch_size=8", ("dataset.test_batch_size=8",)),  # without context
        (CIFAR, "runtime.dataset.test_batch_size=8", ()),
        (ROW, "gradient=upg gradient.steps=5 gradient.damping=0.5", ()),
        (ROW, "label.method=x runtime.paths.runs=/tmp logger=wandb runtime.project=x", ()),
        (ROW, "runtime.trainer.accelerator=auto runtime.checkpoint.every_n_epochs=3", ()),
    ],
)
def test_changes_are_the_settings_that_differ(row, overrides, changes):
    found = identity(row, *overrides.split(), "trainer.precision=32-true")
    assert found.changes == changes
    assert (found == identity(row)) is (not changes)


@pytest.mark.parametrize("row", ["../../x", "/x", "a\\b", ".hidden"])
def test_a_name_of_a_row_stays_within_the_folder_of_runs(workplace, row):
    with pytest.raises(UserError, match=r"label\.row must be names joined by /"):
        workplace.train(*CHAINS, f"label.row={row!r}")
    assert not list(workplace.path.parent.glob("**/x"))
    assert not list(workplace.path.iterdir())


@pytest.mark.usefixtures("workplace")
def test_measurements_make_another_run():
    """Otherwise the run would be skipped as finished, without the measurement."""
    (change,) = identity(ROW, "callbacks=precision").changes
    assert change.startswith("measure.precision=GradientPrecision(")


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize(
    ("line", "label"),
    [
        ("experiment=table4/cox2_implicit dataset.name=MUTAG", "MUTAG, IGNN, Implicit"),
        ("experiment=digits/one_step", "Digits, DEQ, One-step"),
        ("experiment=digits/one_step gradient.steps=3", "Digits, DEQ, UPG A(3, 1.0)"),
        (
            "experiment=digits/upg_k5_d0.5 gradient.damping=adaptive",
            "Digits, DEQ, UPG A(5, adaptive)",
        ),
        ("experiment=digits/upg_k5_d0.5 gradient._target_=mine.Averaged", "Digits, DEQ, Averaged"),
        ("experiment=digits/implicit gradient=bptt model=mdeq_tiny", "Digits, MDEQ-Tiny, BPTT"),
        (
            "experiment=table3/wikitext103_preln_jr_implicit",
            "wikitext103, DEQ (PreLN), JR + Implicit",
        ),
        ("gradient=one_step", "Chains, IGNN, One-step"),
    ],
)
def test_label_names_what_was_composed(line, label):
    found = as_dict(composed(line.split()))["label"]
    assert ", ".join(found[key] for key in ("dataset", "model", "method")) == label


@pytest.mark.parametrize("error", [NotImplementedError("no flock"), PermissionError(13, "denied")])
def test_folder_that_cannot_be_locked_is_reported(workplace, monkeypatch, error):
    monkeypatch.setattr(FileLock, "acquire", Mock(side_effect=error))
    with pytest.raises(UserError, match=r"^runs/.* written or locked .* another runtime"):
        workplace.train(*CHAINS)
    assert not list(workplace.path.glob("**/record.json"))
