"""Training runs from composition to record: skipped, resumed, refused, and what is said then."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from interruptions import assert_same_run, checkpoint, interrupted
from phantomgrad.errors import MissingDataError, UserError
from phantomgrad.jobs import as_dict
from phantomgrad.records import read_record
from phantomgrad.runs import Identity, RunFolder, hash_config
from training import Script, Workplace, composed, start

EPOCHS = 12
ROW = "experiment=chains/upg_k5_d0.5"
CHAINS = (ROW, f"trainer.max_epochs={EPOCHS}", "checkpoint_every_n_epochs=5")
# The learning rate drops right where a checkpoint is written.
DROP = ("schedule=multistep", "schedule.milestones=[5]", "schedule.gamma=0.1")
NARROW = (
    *("model.channels=[8,8]", "model.head_channels=[2,2]", "model.features=8"),
    *("solver.max_evaluations=3", "adjoint.max_evaluations=3"),
)


def own_configs(workplace: Workplace) -> Path:
    """Give the workplace a copy of the configuration files, to be changed at will."""
    copy = workplace.path / "configs"
    shutil.copytree(workplace.configs, copy)
    workplace.configs = copy
    return copy


def shorten(workplace: Workplace, epochs: int) -> Path:
    """Make the row shorter in its own file, which is no deviation from it; return the file."""
    row = own_configs(workplace) / "experiment" / "chains" / "upg_k5_d0.5.yaml"
    row.write_text(row.read_text().replace("max_epochs: 300", f"max_epochs: {epochs}"))
    return row


# --- A run and its record --------------------------------------------------------------------


def test_run_writes_its_record(workplace: Workplace) -> None:
    folder = workplace.train(*CHAINS)
    record = read_record(folder / "record.json")
    assert record.row == "chains/upg_k5_d0.5"
    assert folder == workplace.path / "runs" / record.row / record.instance
    assert record.label == {"dataset": "Chains", "model": "IGNN", "method": "UPG A(5, 0.5)"}
    assert record.parameters == {"total": 3504, "trainable": 1888}
    assert (record.data["train"], record.data["test"]) == (20, 200)
    curves = record.curves
    assert {len(curve) for curve in curves.values()} == {EPOCHS}
    assert record.result.best == pytest.approx(max(curves["test/accuracy"]))
    assert record.result.last == pytest.approx(curves["test/accuracy"][-1])
    assert curves["train/loss"][-1] < curves["train/loss"][0]
    assert set(record.seconds) >= {"total", "epoch", "step", "forward", "backward"}
    assert record.solver["evaluations"] > 1
    assert record.solver["converged"] == 1
    assert record.memory["peak_bytes"] > 1e6
    assert record.config_hash == hash_config(record.config)
    assert record.config["run"]["instance"] == record.instance
    assert torch.__version__.startswith(record.environment["versions"]["torch"])


def test_implicit_run_reports_its_adjoint_solver(workplace: Workplace) -> None:
    record = workplace.record("experiment=chains/implicit", "trainer.max_epochs=2")
    assert record.solver["adjoint_converged"] == 1
    assert record.solver["adjoint_evaluations"] > 1


def test_whole_row_is_published_in_full(workplace: Workplace) -> None:
    """Nothing but circumstances overridden: the record goes among the results, unreduced."""
    row = shorten(workplace, 40)
    row.write_text(re.sub(r"^reduced: .*\n", "", row.read_text(), flags=re.MULTILINE))
    folder = workplace.train(ROW, "seed=3", "callbacks.spectrum=null", "project=mine")
    published = workplace.path / "results" / "records" / "chains/upg_k5_d0.5" / "seed3.json"
    assert published.read_bytes() == (folder / "record.json").read_bytes()
    record = read_record(published)
    assert (record.protocol, record.changes, record.instance) == ("full", [], "seed3")
    assert record.result.best > 0.95  # the embedded job is soon solved


def test_row_that_is_reduced_says_so(workplace: Workplace) -> None:
    """By its own file, that is: it is published, with what it reduces."""
    row = shorten(workplace, 2)
    row.write_text(re.sub(r"^reduced: .*\n", "", row.read_text(), flags=re.MULTILINE))
    row.write_text(f"{row.read_text()}reduced: [2 epochs of 300]\n")
    record = workplace.record(ROW)
    assert (record.protocol, record.changes) == ("reduced", ["2 epochs of 300"])
    assert (workplace.path / "results/records" / record.row / "seed0.json").exists()


def test_changed_row_is_reduced_and_not_published(workplace: Workplace) -> None:
    record = workplace.record(*CHAINS)
    assert record.protocol == "reduced"
    assert f"trainer.max_epochs={EPOCHS}" in record.changes
    assert "checkpoint_every_n_epochs=5" not in record.changes  # changes no result
    assert not (workplace.path / "results").exists()


def test_seed_is_the_only_source_of_chance(workplace: Workplace) -> None:
    first = workplace.record(*CHAINS)
    torch.rand(7)
    again = workplace.record(*CHAINS, "paths.runs=again")
    other = workplace.record(*CHAINS, "seed=1")
    assert first.curves == again.curves
    assert first.curves["train/loss"] != other.curves["train/loss"]


# --- Skipped, kept apart, left alone ---------------------------------------------------------


def test_finished_run_is_skipped(workplace: Workplace, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    folder = workplace.train(*CHAINS)
    before = (folder / "record.json").stat().st_mtime_ns
    assert workplace.train(*CHAINS) == folder
    assert (folder / "record.json").stat().st_mtime_ns == before
    assert "finished, skipped" in caplog.messages[-1]


def test_changed_configurations_do_not_collide(workplace: Workplace) -> None:
    changes: list[tuple[str, ...]] = [(), ("optimizer.lr=0.02",), ("seed=1",), ("gradient=npg",)]
    folders = {workplace.train(*CHAINS, *change) for change in changes}
    assert len(folders) == len(changes)
    assert all((folder / "record.json").exists() for folder in folders)


def identity(*overrides: str) -> Identity:
    return Identity.of(as_dict(composed(list(overrides))), "row", list(overrides))


def test_circumstances_do_not_change_the_identity(workplace: Workplace) -> None:
    plain = identity(ROW)
    circumstances = ("paths.runs=/tmp", "logger=wandb", "trainer.accelerator=cpu", "project=x")
    assert identity(ROW, *circumstances) == plain
    assert plain.instance == "seed0"
    other_seed = identity(ROW, "seed=5")
    assert (other_seed.instance, other_seed.config_hash) == ("seed5", plain.config_hash)


@pytest.mark.parametrize("override", ["trainer.devices=2", "reduced=[x]", "label.method=x"])
def test_what_tells_of_another_experiment_is_no_circumstance(
    workplace: Workplace, override: str
) -> None:
    """More devices are a larger batch: such a run has a folder of its own and is not published."""
    other = identity(ROW, override)
    assert other.changes == (override,)
    assert other.instance != identity(ROW).instance


def test_fold_is_part_of_the_instance_alone(workplace: Workplace) -> None:
    first, second = (
        identity("experiment=table4/cox2_implicit", f"dataset.fold={k}") for k in (0, 3)
    )
    assert (first.instance, second.instance) == ("seed42-fold0", "seed42-fold3")
    assert first.config_hash == second.config_hash


def test_each_fold_has_its_own_seed(
    workplace: Workplace, small_tu: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds: list[int] = []

    def seed_everything(seed: int, **_: object) -> None:
        seeds.append(seed)

    monkeypatch.setattr("phantomgrad.train.lightning.seed_everything", seed_everything)
    here = ("experiment=table4/cox2_implicit", f"dataset.root={small_tu}", "trainer.max_epochs=1")
    for fold in (0, 3):
        workplace.train(*here, f"dataset.fold={fold}")
    assert seeds == [42, 45]


def test_run_without_a_row_is_a_custom_one(workplace: Workplace) -> None:
    folder = workplace.train("trainer.max_epochs=2", "gradient=one_step")
    record = read_record(folder / "record.json")
    assert record.row == "custom"
    assert record.instance == f"seed0-{record.config_hash[:8]}"
    assert not (workplace.path / "results").exists()


def test_second_process_leaves_a_run_to_the_first(
    workplace: Workplace, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    folder = workplace.path / "runs" / "chains/upg_k5_d0.5" / identity(*CHAINS).instance
    with RunFolder(folder).locked() as mine:
        assert mine
        workplace.train(*CHAINS)
        assert "another process is at it" in caplog.messages[-1]
        assert [path.name for path in folder.iterdir()] == [".lock"]
    workplace.train(*CHAINS)
    assert (folder / "record.json").exists()


def test_finished_run_of_another_configuration_is_kept(
    workplace: Workplace, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The row's file was changed since: same folder, other experiment."""
    folder = workplace.train(ROW, "trainer.max_epochs=2")
    record = json.loads((folder / "record.json").read_text())
    record["config_hash"] = "0" * 64
    (folder / "record.json").write_text(json.dumps(record))
    before = (folder / "record.json").read_bytes()
    with pytest.raises(UserError, match=r"finished run of another configuration .* move it away"):
        workplace.train(ROW, "trainer.max_epochs=2")
    assert (folder / "record.json").read_bytes() == before


# --- Interrupted and resumed -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "epoch"),
    [
        ("chains/upg_k5_d0.5", 6),
        ("chains/npg_k5_d0.5", 8),
        ("table4/cox2_implicit", 6),
        ("digits/one_step", 8),  # shuffled batches
    ],
)
def test_resumed_run_is_the_uninterrupted_one(
    workplace: Workplace, small_tu: Path, row: str, epoch: int
) -> None:
    """Broken off in the epoch after the checkpoint, where the learning rate drops, or later."""
    here = (*CHAINS[1:], *DROP, f"experiment={row}", "checkpoint_every_n_epochs=5")
    if row.startswith("table4"):
        here += (f"dataset.root={small_tu}", "dataset.folds=3", "dataset.batch_size=8")
    if row.startswith("digits"):
        here += ("+trainer.limit_train_batches=2", "+trainer.limit_val_batches=1")
    whole = workplace.train(*here, "paths.runs=whole")
    folder = interrupted(workplace, epoch, *here)
    assert checkpoint(folder)["epoch"] == 4
    assert workplace.train(*here) == folder
    assert_same_run(folder, whole)
    ours, theirs = (read_record(path / "record.json") for path in (folder, whole))
    assert ours.curves == theirs.curves
    assert ours.result == theirs.result
    rates = checkpoint(folder)["lr_schedulers"][0]
    assert rates["milestones"] == {5: 1}


@pytest.mark.parametrize("step", [2, 3, 5, 8, 11, 12, 13])
@pytest.mark.parametrize("row", ["digits/npg_k5_d0.5", "table1/implicit"])
@pytest.mark.filterwarnings("ignore::phantomgrad.AdjointWarning")
def test_run_resumed_in_the_middle_of_an_epoch_is_the_uninterrupted_one(
    workplace: Workplace, cifar_root: Path, row: str, step: int
) -> None:
    """Three epochs of five shuffled batches, evaluated after each; dropout and pretraining."""
    here: tuple[str, ...] = (
        f"experiment={row}",
        "trainer.max_epochs=3",
        "checkpoint_every_minutes=0",
        "checkpoint_every_n_epochs=1",
    )
    here += ("callbacks.spectrum.every_n_epochs=2", "callbacks.spectrum.iterations=3")
    if row.startswith("digits"):
        here += ("dataset.batch_size=216", "+trainer.limit_val_batches=1")
    else:
        here += (f"dataset.root={cifar_root}", "dataset.batch_size=20", *NARROW)
        here += ("task.pretraining_steps=6", "task.pretraining_layers=2")
    whole = workplace.train(*here, "paths.runs=whole")
    folder = interrupted(workplace, step, *here, unit="step")
    assert checkpoint(folder)["global_step"] == step - 1
    assert workplace.train(*here) == folder
    assert_same_run(folder, whole)
    ours, theirs = (read_record(path / "record.json") for path in (folder, whole))
    assert str(ours.curves) == str(theirs.curves)
    assert ours.result == theirs.result


def test_infinite_loss_in_the_middle_of_an_epoch_keeps_the_checkpoint_before(
    workplace: Workplace,
) -> None:
    """Where a checkpoint is due, the loss is looked at first, also if no step is."""
    here = ("experiment=digits/one_step", "trainer.max_epochs=2", "checkpoint_every_minutes=0")
    unseen = (*here, "nonfinite=null")
    folder = interrupted(workplace, 4, *unseen, unit="step")
    before = (folder / "checkpoints" / "last.ckpt").read_bytes()
    with pytest.raises(UserError, match=r"training loss is nan in epoch 1: no checkpoint"):
        workplace.train(*unseen, "+callbacks.bomb={_target_: interruptions.PoisonedStep, step: 6}")
    assert len((folder / "checkpoints" / "last.ckpt").read_bytes()) == len(before)
    assert all(value.isfinite().all() for value in checkpoint(folder)["state_dict"].values())
    assert checkpoint(folder)["global_step"] == 5


def test_run_broken_off_before_its_first_checkpoint_starts_again(workplace: Workplace) -> None:
    whole = workplace.train(*CHAINS, "paths.runs=whole")
    with pytest.raises(InterruptedError):
        workplace.train(*CHAINS, "+callbacks.bomb={_target_: interruptions.Interrupt, epoch: 3}")
    assert_same_run(workplace.train(*CHAINS), whole)


def test_run_broken_off_before_its_record_only_writes_it(workplace: Workplace) -> None:
    folder = workplace.train(*CHAINS, "checkpoint_every_n_epochs=4")
    record = read_record(folder / "record.json")
    (folder / "record.json").unlink()
    before = (folder / "checkpoints" / "last.ckpt").read_bytes()
    workplace.train(*CHAINS, "checkpoint_every_n_epochs=4")
    again = read_record(folder / "record.json")
    assert (again.curves, again.result) == (record.curves, record.result)
    assert (folder / "checkpoints" / "last.ckpt").read_bytes() == before


def test_seconds_before_an_interruption_count(workplace: Workplace) -> None:
    folder = interrupted(workplace, 8, *CHAINS)
    content = checkpoint(folder)
    content["callbacks"]["CostMeter"]["total"] += 1000
    torch.save(content, folder / "checkpoints" / "last.ckpt")
    assert 1000 < workplace.record(*CHAINS).seconds["total"] < 1100


def test_killed_run_resumes(workplace: Workplace) -> None:
    """SIGKILL at a moment of its own choosing, then the same command again."""
    here = (ROW, "trainer.max_epochs=80", "checkpoint_every_n_epochs=5", *DROP)
    process = start(workplace.path, *here)
    try:
        deadline = time.monotonic() + 300
        while not list(workplace.path.glob("runs/**/last.ckpt")):
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    (found,) = workplace.path.glob("runs/**/last.ckpt")
    folder = found.parents[1]
    assert not (folder / "record.json").exists()
    assert checkpoint(folder)["epoch"] < 79
    workplace.train(*here)
    assert_same_run(folder, workplace.train(*here, "paths.runs=whole"))


def test_checkpoint_of_another_configuration_is_not_resumed(workplace: Workplace) -> None:
    """The row's file was changed between interruption and restart."""
    row = shorten(workplace, 8)
    folder = interrupted(workplace, 7, ROW, "checkpoint_every_n_epochs=5")
    before = (folder / "checkpoints" / "last.ckpt").read_bytes()
    row.write_text(row.read_text().replace("lr: 0.01", "lr: 0.02"))
    with pytest.raises(UserError, match=r"last.ckpt is of another configuration .* move it away"):
        workplace.train(ROW, "checkpoint_every_n_epochs=5")
    assert (folder / "checkpoints" / "last.ckpt").read_bytes() == before


# --- What can go wrong -----------------------------------------------------------------------


def test_checkpoint_of_another_size_is_said_and_kept(workplace: Workplace) -> None:
    folder = interrupted(workplace, 8, *CHAINS)
    path = folder / "checkpoints" / "last.ckpt"
    content = torch.load(path, weights_only=True)
    name, weight = next((k, v) for k, v in content["state_dict"].items() if v.dim() == 2)
    content["state_dict"][name] = weight[:-1]
    torch.save(content, path)
    with pytest.raises(
        UserError, match=rf"last.ckpt is of a model of another size \({name} .*\): "
    ):
        workplace.train(*CHAINS)
    assert path.exists()


@pytest.mark.parametrize("generations", [1, 2])
def test_damaged_checkpoint_is_kept_and_the_run_goes_on(
    workplace: Workplace, caplog: pytest.LogCaptureFixture, generations: int
) -> None:
    """From the checkpoint before it or, without one, from the beginning."""
    caplog.set_level(logging.INFO)
    whole = workplace.train(*CHAINS, "checkpoint_every_n_epochs=2", "paths.runs=whole")
    folder = interrupted(workplace, 8, *CHAINS, "checkpoint_every_n_epochs=2")
    path = folder / "checkpoints" / "last.ckpt"
    path.write_bytes(path.read_bytes()[:1000])
    if generations == 1:
        (folder / "checkpoints" / "last.previous.ckpt").unlink()
    workplace.train(*CHAINS, "checkpoint_every_n_epochs=2")
    assert "last.ckpt is damaged (BadZipFile" in caplog.text
    assert len((folder / "checkpoints" / "last.ckpt.damaged").read_bytes()) == 1000
    assert ("resuming from" in caplog.text) == (generations == 2)
    assert ("starts afresh" in caplog.text) == (generations == 1)
    assert_same_run(folder, whole)


def test_unknown_kind_of_checkpoint_is_said_and_kept(workplace: Workplace) -> None:
    """Whole, but nothing that a checkpoint should be."""
    folder = interrupted(workplace, 8, *CHAINS)
    path = folder / "checkpoints" / "last.ckpt"
    torch.save(["nothing"], path)
    before = path.read_bytes()
    with pytest.raises(UserError, match=r"last.ckpt is no readable checkpoint .* delete it to run"):
        workplace.train(*CHAINS)
    assert path.read_bytes() == before


def test_corrupt_record_is_said_and_kept(workplace: Workplace) -> None:
    folder = workplace.train(*CHAINS)
    (folder / "record.json").write_text('{"row": ')
    with pytest.raises(UserError, match=r"record.json is no readable record .* delete it"):
        workplace.train(*CHAINS)
    assert (folder / "record.json").read_text() == '{"row": '


def test_infinite_loss_stops_the_run_before_a_checkpoint(workplace: Workplace) -> None:
    """The message names what may help; the checkpoint is the one from before."""
    unseen = "nonfinite=null"
    poison = "+callbacks.poison={_target_: interruptions.Poison, epoch: 10}"
    with pytest.raises(UserError, match=r"training loss is nan in epoch 10: .* optimizer\.lr"):
        workplace.train(*CHAINS, "checkpoint_every_n_epochs=2", unseen, poison)
    (found,) = workplace.path.glob("runs/**/last.ckpt")
    saved = checkpoint(found.parents[1])
    assert saved["epoch"] == 7
    assert all(bool(value.isfinite().all()) for value in saved["state_dict"].values())


def no_space(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_full_disk_spares_the_last_checkpoint(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a checkpoint is written, on the disk of the runs, when no space is left on it."""
    whole = workplace.train(*CHAINS, "paths.runs=whole")
    folder = interrupted(workplace, 8, *CHAINS)
    before = (folder / "checkpoints" / "last.ckpt").read_bytes()

    def other_disk(*_: object) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    def half_copy(source: str, target: str, **_: object) -> None:
        Path(target).write_bytes(Path(source).read_bytes()[:5000])
        no_space()

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", no_space)
        # Lightning's own way is a temporary file, moved; across disks that is a copy.
        patch.setattr(os, "rename", other_disk)
        patch.setattr(shutil, "copyfile", half_copy)
        with pytest.raises(UserError, match=r"disk is full .* it resumes from the last checkpoint"):
            workplace.train(*CHAINS)
    assert (folder / "checkpoints" / "last.ckpt").read_bytes() == before
    assert [path.name for path in (folder / "checkpoints").iterdir()] == ["last.ckpt"]
    assert_same_run(workplace.train(*CHAINS), whole)


def test_full_disk_at_the_record_is_said(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", no_space)
        with pytest.raises(UserError, match="the disk is full"):
            workplace.train(*CHAINS, "checkpoint_every_n_epochs=100")
    assert not list(workplace.path.glob("runs/**/record.json"))


def test_missing_data_set_names_the_command(workplace: Workplace) -> None:
    with pytest.raises(MissingDataError, match=r"python scripts/fetch_data.py COX2"):
        workplace.train("experiment=table4/cox2_implicit")
    assert not list(workplace.path.glob("**/record.json"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("solver: {tolerance: 1.0e-3}", "model cannot be built: .*'tolerance'"),
        ("gradient: {step: 5}", "model cannot be built: .*'step'"),
        ("model: {kapa: 0.9}", "model cannot be built: .*'kapa'"),
        ("dataset: {lenght: 12}", "dataset cannot be built: .*'lenght'"),
        ("task: {clip: 0.5}", "task cannot be built: .*'clip'"),
        ("trainer: {max_epoch: 3}", "trainer cannot be built: .*'max_epoch'"),
        (
            "optimizer: {learning_rate: 3}",
            "optimizer or schedule cannot .*'learning_rate'",
        ),
        ("schedule: {gama: 3}", "optimizer or schedule cannot .*'gama'"),
        ("callbacks: {spectrum: {every: 3}}", r"callbacks\.spectrum cannot be built: .*'every'"),
        ("logger: {nam: x}", "logger cannot be built: .*'nam'"),
    ],
)
def test_misspelt_key_in_an_experiment_file_is_refused(
    workplace: Workplace, text: str, message: str
) -> None:
    """Hydra adds unknown keys of a file; the constructor is the guard."""
    row = own_configs(workplace) / "experiment" / "chains" / "misspelt.yaml"
    row.write_text(f"# @package _global_\n{text}\n")
    with pytest.raises(UserError, match=message) as error:
        workplace.train("experiment=chains/misspelt")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("optimizer.lr=-1", "optimizer or schedule cannot be built: Invalid learning rate: -1"),
        ("optimizer.lr=fast", "optimizer or schedule cannot be built: "),
        ("trainer.max_epochs=0", "trainer.max_epochs must be a positive integer"),
        ("trainer.max_epochs=many", "trainer.max_epochs must be a positive integer"),
        ("seed=-1", r"seed must be an integer from 0 to 4294967295, got -1"),
        ("seed=abc", r"seed must be an integer from 0 to 4294967295, got 'abc'"),
        ("seed=1.5", r"seed must be an integer from 0 to 4294967295, got 1.5"),
        ("matmul_precision=low", "matmul_precision must be highest, high or medium, got 'low'"),
        ("gradient.steps=0", "steps must be at least 1, got 0"),
        ("model.kappa=1", r"kappa must lie in \(0, 1\), got 1"),
        ("dataset.length=3", "needs at least 320 nodes"),
        ("trainer.accelerator=warp", "trainer cannot be built: .*warp"),
        ("+dataset.fold=first", "dataset.fold must be an integer, got 'first'"),
    ],
)
def test_bad_value_is_said_in_a_line(workplace: Workplace, override: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        workplace.train(*CHAINS, override)


def test_images_too_small_for_the_scales_are_said_in_a_line(workplace: Workplace) -> None:
    scales = ("model.channels=[8,8,8,8,8]", "model.head_channels=[2,2,2,2,2]")
    with pytest.raises(UserError, match=r"multiples of 16, for 5 scales, got 8 x 8"):
        workplace.train("experiment=digits/implicit", "model=mdeq_tiny", *scales)


# --- Loggers ---------------------------------------------------------------------------------


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """wandb without network."""
    module = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    yield module
    module.teardown()


def test_wandb_gets_each_run_on_its_own(workplace: Workplace, wandb: ModuleType) -> None:
    """Two runs of one table in one process: two runs on wandb, each with all that it is."""
    folders = [workplace.train(*CHAINS, "logger=wandb", f"seed={seed}") for seed in (0, 1)]
    wandb.teardown()  # waits until all is written
    for folder in folders:
        (path,) = folder.glob("wandb/offline-run-*/run-*.wandb")
        content = path.read_bytes()
        config = read_record(folder / "record.json").config
        for said in (
            "chains/upg_k5_d0.5",  # group
            "upg",  # job type
            folder.name,
            "phantomgrad",  # project
            "test/accuracy",
            json.dumps(config["label"]["method"]),
            config["optimizer"]["_target_"],
        ):
            assert said.encode() in content, said


def test_wandb_is_asked_for_only_where_it_is_chosen(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    workplace.train(*CHAINS)
    with pytest.raises(UserError, match=r"needs the package wandb: install it"):
        workplace.train(*CHAINS, "logger=wandb", "seed=1")


def test_csv_logger_keeps_the_curves(workplace: Workplace) -> None:
    folder = workplace.train(*CHAINS)
    (metrics,) = folder.glob("csv/version_0/metrics.csv")
    header, *rows = metrics.read_text().splitlines()
    assert {"train/loss", "test/accuracy", "spectral_radius"} <= set(header.split(","))
    assert len(rows) >= EPOCHS


# --- The script ------------------------------------------------------------------------------


def test_script_does_a_run_and_skips_it_the_second_time(script: Script) -> None:
    first, second = script(*CHAINS), script(*CHAINS)
    assert (first.code, second.code) == (0, 0)
    assert "accuracy best" in first.out
    assert "finished, skipped" in second.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("trainer.max_epoch=3",),
            "there is no setting 'trainer.max_epoch'; the nearest are trainer.max_epochs,",
        ),
        (
            ("experiment=table4/cox2_implict",),
            "there is no experiment 'table4/cox2_implict'; the nearest are table4/cox2_implicit,",
        ),
        (("table=tabel4",), "there is no table 'tabel4'; the nearest are table4, "),
        (("solver=broydn",), "there is no solver 'broydn'; the nearest are broyden "),
        (("experiment=chains/implicit", "x y"), "cannot read the overrides:"),
    ],
)
def test_script_answers_a_mistake_in_one_line(
    script: Script, arguments: tuple[str, ...], message: str
) -> None:
    outcome = script(*arguments)
    assert outcome.code == 1
    assert outcome.out == ""
    assert outcome.err.startswith(message)
    assert outcome.err.count("\n") == 1


def test_script_says_what_stops_a_run_in_one_line(script: Script) -> None:
    outcome = script("experiment=table4/cox2_implicit")
    assert outcome.code == 1
    assert outcome.err == ""
    assert outcome.out.startswith("COX2 is not in data/TUDataset: fetch it with")
    assert outcome.out.count("\n") == 1


def test_script_says_a_corrupt_file_in_one_line(script: Script, workplace: Workplace) -> None:
    assert script(*CHAINS).code == 0
    (record,) = workplace.path.glob("runs/**/record.json")
    (checkpoint,) = workplace.path.glob("runs/**/last.ckpt")
    record.write_text("{")
    outcome = script(*CHAINS)
    assert (outcome.code, outcome.out.count("\n")) == (1, 1)
    assert "is no readable record" in outcome.out
    assert record.read_text() == "{"
    record.unlink()
    checkpoint.write_text("{")
    outcome = script(*CHAINS)
    assert (outcome.code, outcome.out.count("\n")) == (0, 3)
    assert "last.ckpt is damaged (BadZipFile: File is not a zip file): kept" in outcome.out
    assert checkpoint.with_name("last.ckpt.damaged").read_text() == "{"


def test_table_goes_on_after_a_failed_run(script: Script, workplace: Workplace) -> None:
    """The exit code tells that something failed; the other rows are done."""
    rows = "experiment=chains/implicit,chains/upg_k5_d0.5,chains/npg_k5_d0.5"
    short = ("trainer.max_epochs=2", "checkpoint_every_n_epochs=1")
    assert script("-m", rows, *short).code == 0
    records = sorted(workplace.path.glob("runs/**/record.json"))
    assert len(records) == 3
    broken, kept, lost = records
    broken.write_text("{")
    lost.unlink()
    before = kept.stat().st_mtime_ns
    outcome = script("-m", rows, *short)
    assert outcome.code == 1
    assert "is no readable record" in outcome.out
    assert kept.stat().st_mtime_ns == before
    assert lost.exists()


def test_table_file_launches_its_rows(script: Script, workplace: Workplace) -> None:
    outcome = script("table=chains", "seed=0", "trainer.max_epochs=1")
    assert outcome.code == 0
    done = [line.split()[0] for line in outcome.out.splitlines() if "accuracy best" in line]
    assert done == ["chains/implicit", "chains/upg_k5_d0.5", "chains/npg_k5_d0.5"]


# Several processes --------------------------------------------------------------------------

TWO = ("trainer=ddp", "trainer.accelerator=cpu", "trainer.devices=2", "trainer.max_epochs=1")


@pytest.mark.skipif(
    not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
    reason="this build of torch has no gloo backend",
)
def test_two_processes_make_one_run_and_one_record(tmp_path: Path) -> None:
    """The second one, which the first one starts, finds the folder locked, and follows."""
    process = start(tmp_path, "experiment=digits/one_step", *TWO, OMP_NUM_THREADS="1")
    out, _ = process.communicate(timeout=180)
    assert process.returncode == 0, out
    assert "sync_dist" not in out
    (path,) = tmp_path.glob("runs/digits/one_step/*/record.json")
    record = read_record(path)
    assert record.result.best > 0.5
    assert "trainer.devices=2" in record.changes


def test_table_does_not_start_processes_of_its_own(script: Script) -> None:
    outcome = script("table=digits", "seed=0", "experiment=digits/implicit", *TWO)
    assert outcome.code == 1
    assert "a table cannot start the processes of trainer.devices=2" in outcome.out
    assert "start the rows one by one" in outcome.out
