"""Mistakes on a command line are reported in one line, before anything runs."""

import re
from argparse import ArgumentParser

import pytest
from hydra._internal.utils import get_args_parser
from hydra.errors import HydraException
from train.chains import own_row
from training import check_line
from yaml import MarkedYAMLError

from phantomgrad_suite.jobs.compose import explain
from phantomgrad_suite.runs.errors import UserError

NO_SETTING = "there is no setting "


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("trainer.max_epoch=3", NO_SETTING + r"'trainer.max_epoch'; .* trainer.max_epochs"),
        ("seeds=3", NO_SETTING + r"'seeds'; the nearest are seed"),
        ("zzzzz=3", NO_SETTING + r"'zzzzz'; no similar name exists .*configs/train.yaml\)$"),
        (
            "experiment=chains/implict",
            r"there is no experiment 'chains/implict'; .* chains/impl[^;]*$",
        ),
        ("-m experiment=chains/npg_k5_d0.5,chains/no", r"there is no experiment 'chains/no'"),
        ("seed=0,1", r"Ambiguous value for argument 'seed=0,1' .* add --multirun"),
        ("table=tabel4", r"there is no table 'tabel4'; the nearest are table4, .* configs/table/"),
        ("table=chains cluster=slrm", r"there is no cluster 'slrm'; the nearest are slurm"),
        ("table=chains cluster=slurm runtime.cluster.part=gpu", NO_SETTING + r".*partition"),
        ("solver@adjoint=broydn", r"there is no solver 'broydn'; the nearest are broyden"),
        ("table=chains dataset.lenght=12", NO_SETTING + r"'dataset.lenght'; .* dataset.length"),
        # A setting of the first row, but not of the second one.
        ("table=chains gradient.solver=3", NO_SETTING + r"'gradient.solver'"),
        ("suite=default", NO_SETTING + r"'suite'"),
        ("experiment=chains/implicit seed", "cannot read seed: an override is <setting>=<value>"),
        ("label.method=[1", r"cannot read label.method=\[1: a bracket is not closed$"),
        ("runtime.paths.runs=/a=b", r"""cannot .* quotes, 'runtime.paths.runs="/a=b"'$"""),
        ("runtime.paths.runs=/Läufe", r"""cannot .* quotes, 'runtime.paths.runs="/Läufe"'$"""),
        ("runtime.paths.runs=~/runs", r"runtime.paths.runs=~/runs: ~ is not expanded here: .*HOME"),
        ("runtime.paths.runs='~/runs'", "runtime.paths.runs='~/runs': ~ is not expanded here"),
        ("experiment=chains/implicit optimizer.lr=", "optimizer.lr= is empty: give a value"),
        ("experiment=", "experiment= is empty: give a value"),
        ("--experiment x", "there is no option --experiment: settings .*, as experiment=x;"),
        ("--experiment=x", "there is no option --experiment: settings .*, as experiment=x;"),
        ("-x", "unrecognized arguments: -x; --hydra-help lists the options"),
        ("experiment=chains/implicit logger=null", "logger=null is no .*from tensorboard, wandb$"),
        (
            "runtime.paths=null",
            "hydra.run.dir cannot be read: .* `runtime.paths` is not a container",
        ),
        ("experimnt=chains/implicit", NO_SETTING + r"'experimnt'; .* are experiment=\.\.\."),
        ("table=chains table=digits", "table=chains table=digits: a command runs one table or su"),
        ("hydra.run.dir=/proc/none", r".*No such file or directory: '/proc/none'"),
        ("runtime.paths.runs=/dev/null", ".*/.hydra'; runtime.paths.runs must be a folder"),
        ("experiment=null", "experiment=null is no choice: leave it out, or choose from chains/"),
    ],
)
def test_mistakes_are_reported_in_one_line(script, line, message):
    outcome = script(*line.split())
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (1, "", 1)
    assert re.match(message, outcome.err)


@pytest.mark.parametrize("line", ["", "seed=1", "trainer.max_epochs=1 runtime.paths.runs=here"])
def test_command_that_names_no_row_shows_how(script, workplace, line):
    script.always = ()
    outcome = script(*line.split())
    assert (outcome.code, outcome.err) == (2, "")
    assert "python scripts/train.py table=table4 cluster=local" in outcome.out
    assert "The files of configs/experiment, configs/table, configs/tune are" in outcome.out
    assert not list(workplace.path.glob("*/custom"))


def test_study_that_is_not_named_is_not_chosen(study_script):
    assert study_script("seed=1").code == 2


def test_commands_start_on_python_3_14(script, monkeypatch):
    """There, argparse expands the help text of an option when it is added."""
    add = ArgumentParser.add_argument

    def add_strictly(parser, *names, **options):
        action = add(parser, *names, **options)
        text = parser._get_formatter()._get_help_string(action)
        assert text is None or "%" not in text or parser._get_formatter()._expand_help(action)
        return action

    monkeypatch.setattr(ArgumentParser, "add_argument", add_strictly)
    with pytest.raises(TypeError, match="LazyCompletionHelp"):
        get_args_parser()
    assert script("experiment=chains/implicit", "trainer.max_epochs=1").code == 0
    script.always = ()
    assert "Install or Uninstall shell completion" in script("--hydra-help").out


def test_broken_interpolation_in_a_row_is_reported(workplace):
    row = own_row(workplace, '# @package _global_\noptimizer: {lr: "${seed"}\n')
    with pytest.raises(HydraException) as error:
        workplace.train(row)
    assert explain(error.value, "train").startswith("optimizer.lr cannot be read: no viable alt")


def test_row_that_inherits_from_itself_is_reported(workplace):
    row = own_row(workplace, "# @package _global_\ndefaults: [/experiment/chains/mine]\n")
    with pytest.raises(RecursionError) as error:
        workplace.train(row)
    message = f"{row}: a file inherits from itself: change its defaults"
    assert explain(error.value, "train", [row, "seed=1"]) == message


def test_tab_in_a_row_is_reported_in_one_line(workplace):
    row = own_row(workplace, "# @package _global_\ntrainer:\n\tmax_epochs: 3\n")
    with pytest.raises(MarkedYAMLError) as error:
        workplace.train(row)
    assert re.match(
        r".*mine\.yaml, line 3: found character .*by spaces\)$", explain(error.value, "train")
    )


def test_row_without_its_package_line_is_refused(workplace):
    row = own_row(workplace, "trainer: {max_epochs: 3}\n")
    with pytest.raises(UserError, match=r"experiment=\.\.\. must start with `# @package _global_`"):
        workplace.train(row)


def test_new_entry_of_a_mapping_needs_a_plus(study_script):
    row = "cpu/table3/wikitext103_postln_implicit"
    line = f"study=throughput/language_cpu setting.batch_sizes={{{row}:2}}"
    assert "a plus adds an argument or entry" in study_script(*line.split()).err
    check_line(line.replace("setting", "+setting"), root="study")
