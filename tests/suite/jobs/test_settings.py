"""Refused before training: missing data, misspelt keys, bad values."""

from copy import deepcopy
from inspect import signature
from itertools import product

import pytest
from graph_data import REPOSITORY
from lightning import Trainer
from omegaconf import OmegaConf
from train.chains import CHAINS, ROW, own_configs, own_row
from training import composed

from phantomgrad_suite.jobs.settings import (
    RUNTIME_TRAINER,
    TRAINER,
    WITHOUT_EFFECT,
    check_settings,
)
from phantomgrad_suite.runs.archive import Archive
from phantomgrad_suite.runs.errors import SettingError, UserError

NO_SETTING, ROOT = "^there is no setting", r".*configs/train\.yaml"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("solver: {tolerance: 1.0e-3}", "model cannot be built: .*'tolerance'"),
        ("gradient: {step: 5}", "model cannot be built: .*'step'"),
        ("model: {kapa: 0.9}", "model cannot be built: .*'kapa'"),
        ("dataset: {lenght: 12}", "dataset cannot be built: .*'lenght'"),
        ("task: {clip: 0.5}", "task cannot be built: .*'clip'"),
        ("trainer: {max_epoch: 3}", "trainer cannot be built: .*'max_epoch'"),
        ("optimizer: {learning_rate: 3}", "optimizer with .* does not work: .*'learning_rate'"),
        ("schedule: {gama: 3}", "schedule with .* does not work: .*'gama'"),
        ("runtime: {callbacks: {spectrum: {every: 3}}}", "spectrum cannot be built: .*'every'"),
        ("runtime: {logger: {nam: x}}", "logger cannot be built: .*'nam'"),
        ("optimzer: {lr: 0.5}", rf"{NO_SETTING} 'optimzer'; the nearest are optimizer{ROOT}"),
        ("table: chains", rf"{NO_SETTING} 'table'; the nearest are label{ROOT}"),
    ],
)
def test_misspelt_key_in_an_experiment_file_is_refused(workplace, text, message):
    """Hydra adds unknown keys of a file; the constructor is the guard."""
    row = own_row(workplace, f"# @package _global_\n{text}\n")
    with pytest.raises(UserError, match=message) as error:
        workplace.train(row)
    assert "\n" not in str(error.value)


def test_key_that_an_interpolation_refers_to_is_accepted(workplace):
    row = own_configs(workplace) / "experiment" / "chains" / "upg_k5_d0.5.yaml"
    row.write_text(row.read_text() + "\nk: 3\n")
    with pytest.raises(UserError, match="there is no setting 'k'"):
        workplace.train("experiment=chains/upg_k5_d0.5", "trainer.max_epochs=1")
    named = "gradient.steps=${k}"
    record = workplace.record("experiment=chains/upg_k5_d0.5", "trainer.max_epochs=1", named)
    assert record.config["gradient"]["steps"] == 3


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("optimizer.lr=-1", "optimizer with lr=-1, .* does not work: Invalid learning rate: -1"),
        ("trainer.max_epochs=0", "trainer.max_epochs must be a positive integer, got 0"),
        ("trainer.max_epochs=1.5", "trainer.max_epochs must be int or null, got 1.5"),
        ("+trainer.accumulate_grad_batches=0", "_grad_batches must be positive or null, got 0"),
        ("trainer.precision='8'", "trainer.precision must be .*'bf16-mixed'.*, got '8'"),
        ("+trainer.sync_batchnorm=true", "must be false without GPUs, got True"),
        ("+trainer.check_val_every_n_epoch=7", r"a divisor of trainer.max_epochs=\d+, .* got 7"),
        ("+trainer.check_val_every_n_epoch=0", r"check_val_every_n_epoch must be .*, got 0"),
        ("+trainer.val_check_interval=0.5", r"val_check_interval must be 1\.0 \(.*\), got 0\.5"),
        ("+trainer.val_check_interval=1", r"val_check_interval must be 1\.0 \(.*\), got 1$"),
        ("+trainer.gradient_clip_val=-1", "gradient_clip_val must be at least 0, got -1"),
        ("+trainer.gradient_clip_val=nan", "must be int or finite float or null, got nan"),
        ("+runtime.trainer.max_steps=1", r"identify the run: set trainer\.max_steps "),
        ("+runtime.trainer.limit_val_batches=1", r"the run: set trainer\.limit_val_batches "),
        ("schedule=multistep schedule.milestones=[x]", r"milestones must be Iterable\[int\], got"),
        ("schedule=warmup_cosine", r"warmup_cosine\(\) .*: it needs task\.schedule_by=step$"),
        ("solver=broyden +solver.keep_inverse=maybe", "keep_inverse must be bool, got 'maybe'"),
        ("gradient.damping=true", "damping must be finite float or Adap.*, got True"),
        ("gradient.damping={every:3}", r"damping must lie in \(0, 1\], got {'every': 3}"),
        ("solver=gmres", "cannot be built: solver must find an equilibrium, .* got GMRES"),
        ("optimizer.lr=x", "lr must be .*float.*Tensor.*, got 'x'"),
        ("gradient=implicit", r"'steps'; if the row sets it, ~<group>\.steps drops it$"),
        ("model=ignn_graphs", "does not take the inputs of NodeClassification .missing a requ"),
        ("model=deq_digits", "ImageClassifier does not take the inputs of .* .too many pos"),
        (
            "task=graph_classification",
            "GraphClassification cannot use batches of type NodeBatch: choose",
        ),
        (
            "task=image_classification",
            "ImageClassification cannot use batches of type NodeBatch: choose",
        ),
        ("dataset=digits", "NodeClassification cannot use batches of type ImageBatch: choose"),
        ("+runtime.dataset.length=20", r"identify the run: set dataset\.length "),
        ("+dataset.root=x +runtime.dataset.root=y", r"identify the run: set dataset\.root "),
        ("+runtime.dataset.unknown=1", r"identify the run: set dataset\.unknown "),
        (
            "runtime.checkpoint=null",
            r"checkpoint must be set \(.*every_minutes=null .*got None",
        ),
        ("~seed", "a run needs 'seed': leave out ~seed"),
        ("label.row=5", "label.row must be str or null, got 5"),
        ("label.reduced=5", r"label.reduced must be list\[str\], got 5"),
        ("label=5", "label must be a mapping, got 5"),
        ("matmul_precision=low", "matmul_precision must be highest, high or medium, got 'low'"),
        ("runtime.trainer.accelerator=warp", "trainer cannot be built: .*warp"),
        ("+trainer.max_steps=7", r"ended after 7 of 12 epochs: .* without trainer.max_steps"),
        ("+dataset.fold=null", "dataset cannot be built: .* unexpected keyword argument 'fold'"),
        ("+dataset.fold=first", "dataset.fold must be an integer from 0 to .*, got 'first'"),
        ("nonfinite=ignore", "nonfinite must be stop or null, got 'ignore'"),
        ("runtime.checkpoint.every_minutes=-1", "checkpoint .* every_minutes must be finite and n"),
        ("runtime.checkpoint.every_n_epochs=x", "checkpoint.every_n_epochs must be int, got 'x'"),
        ("runtime.checkpoint.every_n_epochs=0", "every_n_epochs must be at least 1, got 0"),
        ("+trainer.limit_train_batches=0", "limit_train_batches must be positive.*, got 0"),
        ("+trainer.limit_val_batches=0", "limit_val_batches must be positive.*, got 0"),
        ("+trainer.limit_train_batches=0.5", r"^trainer: You requested .* `limit_train_batches`"),
        ("+trainer.accumulate_grad_batches=2", "number of batches in an epoch, 1, got 2"),
        ("+trainer.strategy=ddp_spawn", "strategy must be one whose processes are commands"),
        ("trainer.precision=16-mixed", "precision must be bf16-mixed or 32-true on a CPU"),
        ("+trainer.gradient_clip_algorithm=norm", "left out without trainer.gradient_clip_val"),
        (
            "+runtime.trainer.profiler=simple",
            "must be an object that writes files, ",
        ),
        ("+runtime.trainer.benchmark=maybe", "runtime.trainer.benchmark must be bool or null"),
        (
            "+optimizer.betas=[0.9]",
            r"^optimizer with .*, betas=\[0.9\] .* work: .*out of range",
        ),
        ("optimizer.lr=1e38", r"^optimizer with lr=1e\+38, .* does not work: value cannot be conv"),
        ("schedule=cosine schedule.T_max=0", "^schedule with T_max=0 does not work: ZeroDivision"),
        ("optimizer._target_=builtins.dict", "^optimizer with .* does not work: "),
        ("runtime.logger=null", "runtime.logger must be set: choose logger=..."),
        *(
            (f"{section}=null", f"{section} must be a mapping, got None")
            for section in ("runtime.callbacks", "runtime.trainer", "runtime.dataset", "measure")
        ),
        ("model._target_=builtins.dict", "model must be a Module, got dict"),
        ("dataset._target_=builtins.dict", "dataset must be a DataModule, got dict"),
        ("+measure.x._target_=builtins.print", "measure.x must be a Callback, got NoneType"),
        ("+measure.x={a:1}", "measure.x must be a Callback, got DictConfig"),
        ("runtime.callbacks.progress=3", "progress cannot be built: Cannot instantiate .* int"),
        (
            "solver=steps +task.budget_jitter=1",
            "budget_jitter must be 0 where no solver",
        ),
        ("runtime.threads=0", "runtime.threads must be a positive integer or null, got 0"),
    ],
)
def test_bad_value_is_reported_in_one_line(workplace, override, message):
    """Nor does a setting that cannot work leave a failed run."""
    with pytest.raises(UserError, match=message) as error:
        workplace.train(*CHAINS, *override.split())
    assert "\n" not in str(error.value)
    noted = [*workplace.path.glob("runs/**/attempt.json")]
    assert len(noted) == (1 if str(error.value).startswith("ended after") else 0)


def test_every_argument_of_a_trainer_acts_or_is_refused():
    """Also those of a version to come: each is in one of three places."""
    known = {*signature(Trainer.__init__).parameters} - {"self"}
    assert known == TRAINER | RUNTIME_TRAINER | WITHOUT_EFFECT.keys()
    assert len(known) == len(TRAINER) + len(RUNTIME_TRAINER) + len(WITHOUT_EFFECT)
    valid = composed([*CHAINS])
    for name, part in product(WITHOUT_EFFECT, ("trainer", "runtime.trainer")):
        config = deepcopy(valid)
        OmegaConf.update(config, f"{part}.{name}", 1, force_add=True)
        with pytest.raises(SettingError, match=f"^{part}.{name} has no effect on a run: "):
            check_settings(config)


def test_published_runs_have_settings_that_act():
    records = Archive(REPOSITORY / "results" / "records").records.values()
    for config in (record.config for record in records if "trainer" in record.config):
        assert {*config["trainer"]} <= {*TRAINER, "_target_"}
        assert {*config["runtime"]["trainer"]} <= RUNTIME_TRAINER


@pytest.mark.parametrize("cut", ["overfit_batches=1", "limit_train_batches=1"])
def test_shortened_epochs_are_changes_of_the_protocol(workplace, cut):
    record = workplace.record(ROW, "trainer.max_epochs=1", f"+trainer.{cut}")
    assert record.protocol == "reduced"
    assert any(cut.split("=")[0] in change for change in record.changes)
    assert not (workplace.path / "runs/results").exists()


def test_images_too_small_for_the_scales_are_reported_in_one_line(workplace):
    scales = ("model.channels=[8,8,8,8,8]", "model.head_channels=[2,2,2,2,2]")
    with pytest.raises(UserError, match=r"multiples of 16, for 5 scales, got 8 x 8"):
        workplace.train("experiment=digits/implicit", "model=mdeq_tiny", *scales)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            "runtime.tune.objective=test/loss",
            r"objective must be validation/loss or validation/accuracy, got 'test/loss'",
        ),
        ("runtime.tune.direction=down", r"direction must be minimize or maximize, got 'down'"),
        ("", "^tune needs a validation part, and COX2 has none as it is set: "),
    ],
)
def test_search_that_cannot_choose_is_refused(workplace, small_tu, overrides, message):
    graphs = ("experiment=table4/cox2_upg_k5_d0.5", f"runtime.dataset.root={small_tu}")
    with pytest.raises(UserError, match=message):
        workplace.train("tune=lambda", *graphs, *overrides.split())


def test_sweep_goes_on_after_a_row_that_cannot_be_resolved(script, workplace):
    """The first row has no ``model.dropout``."""
    rows = "experiment=digits/implicit,chains/implicit"
    missing = "+optimizer.eps=${model.dropout}"
    outcome = script("-m", rows, missing, "trainer.max_epochs=1")
    assert outcome.code == 1
    assert "digits/implicit: optimizer.eps cannot be resolved" in outcome.out
    assert "Traceback" not in outcome.out + outcome.err
    assert len(list(workplace.path.glob("runs/chains/**/record.json"))) == 1
