"""Refused before training: missing data, misspelt keys, bad values."""

import pytest
from train.chains import CHAINS, own_row

from phantomgrad_suite.runs.errors import UserError

NO_SETTING, ROOT = "^there is no setting", r".*configs/train\.yaml"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dataset: {lenght: 12}", "dataset cannot be built: .*'lenght'"),
        ("task: {clip: 0.5}", "task cannot be built: .*'clip'"),
        ("runtime: {callbacks: {spectrum: {every: 3}}}", "spectrum cannot be built: .*'every'"),
        ("optimzer: {lr: 0.5}", rf"{NO_SETTING} 'optimzer'; the nearest are optimizer{ROOT}"),
    ],
)
def test_misspelt_key_in_an_experiment_file_is_refused(workplace, text, message):
    """Hydra adds unknown keys of a file; the constructor is the guard."""
    row = own_row(workplace, f"# @package _global_\n{text}\n")
    with pytest.raises(UserError, match=message) as error:
        workplace.train(row)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("optimizer.lr=-1", "optimizer with lr=-1, .* does not work: Invalid learning rate: -1"),
        ("optimizer.lr=x", "lr must be .*float.*Tensor.*, got 'x'"),
        ("optimizer.lr=1e38", r"^optimizer with lr=1e\+38, .* does not work: value cannot be conv"),
        ("trainer.max_epochs=0", "trainer.max_epochs must be a positive integer, got 0"),
        ("trainer.max_epochs=1.5", "trainer.max_epochs must be int or null, got 1.5"),
        ("+optimizer.eps=${model.nothing}", "^optimizer.eps cannot be resolved"),
        # Lightning would take bfloat16, and the record would say float16.
        ("trainer.precision=16-mixed", "32-true or bf16-mixed on a CPU, got 16-mixed"),
        ("trainer.precision='8'", "trainer.precision must be .*'bf16-mixed'.*, got '8'"),
        ("+trainer.check_val_every_n_epoch=4", "must divide trainer.max_epochs=6, got 4"),
        (
            "+trainer.val_check_interval=0.5",
            r"trainer\.val_check_interval cannot be set, since a run sets it",
        ),
        (
            "+trainer.callbacks=[]",
            r"trainer\.callbacks cannot be set, .* callbacks and loggers are under",
        ),
        ("+trainer.gradient_clip_val=nan", "must be .*finite float.* or null, got nan"),
        ("+trainer.max_steps=4", r"ended after 4 of 6 epochs: .* without trainer.max_steps"),
        ("+trainer.limit_val_batches=0", "an epoch ended without its evaluation"),
        ("+trainer.limit_train_batches=0.5", r"^trainer: You requested .* `limit_train_batches`"),
        ("+trainer.accumulate_grad_batches=2", "number of batches in an epoch, 1, got 2"),
        ("+runtime.trainer.max_steps=1", r"identify the run: set trainer\.max_steps "),
        ("+runtime.trainer.fast_dev_run=true", r"trainer\.fast_dev_run cannot be set"),
        ("+runtime.trainer.benchmark=maybe", "runtime.trainer.benchmark must be bool or null"),
        ("runtime.trainer.accelerator=warp", "trainer cannot be built: .*warp"),
        ("+runtime.dataset.length=20", r"identify the run: set dataset\.length "),
        ("schedule=multistep schedule.milestones=[x]", r"milestones must be Iterable\[int\], got"),
        ("schedule=warmup_cosine", r"warmup_cosine\(\) .*: it needs task\.schedule_by=step$"),
        ("schedule=cosine schedule.T_max=0", "^schedule with T_max=0 does not work: ZeroDivision"),
        ("gradient.damping=true", "damping must be finite float or Adap.*, got True"),
        ("gradient=implicit", r"'steps'; if the row sets it, '~gradient\.steps' drops it$"),
        ("+optimizer.bogus=1", r"'bogus'; if the row sets it, '~optimizer\.bogus' drops it$"),
        ("solver=gmres", "cannot be built: solver must be a phantomgrad.Solver .* got GMRES"),
        ("model=ignn_graphs", "does not take the inputs of NodeClassification .missing a requ"),
        ("dataset=digits", "NodeClassification cannot use batches of type ImageBatch: choose"),
        ("model._target_=builtins.dict", "model must be a Module, got dict"),
        ("+measure.x._target_=builtins.print", "measure.x must be a Callback, got NoneType"),
        ("runtime.logger=null", "runtime.logger must be a Logger, got NoneType"),
        ("runtime.checkpoint=null", "runtime.checkpoint must be a LastCheckpoint, got NoneType"),
        ("runtime.checkpoint.every_n_epochs=0", "every_n_epochs must be at least 1, got 0"),
        ("runtime.threads=0", "runtime.threads must be a positive integer or null, got 0"),
        ("runtime.callbacks=null", "runtime.callbacks must be a mapping, got None"),
        ("~seed", "a run needs 'seed': leave out ~seed"),
        ("label.reduced=5", r"label.reduced must be list\[str\], got 5"),
        ("matmul_precision=low", "matmul_precision must be highest, high or medium, got 'low'"),
        ("nonfinite=ignore", "nonfinite must be stop or null, got 'ignore'"),
        ("+dataset.fold=first", "dataset.fold must be an integer from 0 to .*, got 'first'"),
    ],
)
def test_bad_value_is_reported_in_one_line(workplace, override, message):
    """Nor does a setting that cannot work leave a failed run."""
    with pytest.raises(UserError, match=message) as error:
        workplace.train(*CHAINS, *override.split())
    assert "\n" not in str(error.value)
    noted = [*workplace.path.glob("runs/**/attempt.json")]
    assert len(noted) == str(error.value).startswith("ended after")


def test_one_step_whose_number_of_steps_the_row_sets_is_refused(workplace):
    one_step = ("experiment=digits/upg_k5_d0.5", "gradient=one_step")
    with pytest.raises(UserError, match=r"gradient.steps=5 .*: add gradient\.steps=1"):
        workplace.train(*one_step)
    workplace.train(*one_step, "gradient.steps=1", "gradient.damping=1.0", "trainer.max_epochs=1")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("runtime.tune.objective=test/loss", "must be validation/loss or validation/accuracy, got"),
        ("runtime.tune.direction=down", r"direction must be minimize or maximize, got 'down'"),
        ("", "^tune needs a validation part, and COX2 has none as it is set: "),
    ],
)
def test_search_that_cannot_choose_is_refused(workplace, small_tu, overrides, message):
    graphs = ("experiment=table4/cox2_upg_k5_d0.5", f"runtime.dataset.root={small_tu}")
    with pytest.raises(UserError, match=message):
        workplace.train("tune=lambda", *graphs, *overrides.split())
