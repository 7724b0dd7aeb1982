"""Mistakes on a command line are reported in one line, before anything runs."""

import re
from argparse import ArgumentParser

import pytest
from hydra._internal.utils import get_args_parser
from train.chains import own_row

from phantomgrad_suite.runs.errors import UserError

NO_SETTING = "there is no setting "


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("trainer.max_epoch=3", NO_SETTING + r"'trainer.max_epoch'; .* trainer.max_epochs"),
        ("zzzzz=3", NO_SETTING + r"'zzzzz'; no similar name exists .*configs/train.yaml\)$"),
        ("experiment=chains/implict", r"there is no experiment 'chains/implict'; .*/impl[^;]*$"),
        ("-m experiment=chains/npg_k5_d0.5,chains/no", r"there is no experiment 'chains/no'"),
        ("solver@adjoint=broydn", r"there is no solver 'broydn'; the nearest are broyden"),
        # A setting of some rows, but not of all.
        ("table=chains gradient.solver=3", "chains/npg_k5_d0.5: there is no setting 'gradie"),
        ("table=chains seed=[1", r"cannot read seed=\[1: a bracket is not closed$"),
        ("experiment=chains/implicit seed", "cannot read seed: an override is <setting>=<value>"),
        ("label.method=[1", r"cannot read label.method=\[1: a bracket is not closed$"),
        ("runtime.paths.runs=~/runs", r"runtime.paths.runs=~/runs: ~ is not expanded here: .*HOME"),
        ("--experiment x", "there is no option --experiment: settings .*, as experiment=x;"),
        ("experiment=chains/implicit logger=null", "logger=null is no .*from tensorboard, wandb$"),
        ("table=chains table=digits", "table=chains table=digits: a command takes one table"),
        ("runtime.paths.runs=/dev/null", ".*/.hydra'; runtime.paths.runs must be a folder"),
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
    assert script("experiment=chains/implicit", "cluster=list").code == 0
    script.always = ()
    assert "Install or Uninstall shell completion" in script("--hydra-help").out


def test_row_without_its_package_line_is_refused(workplace):
    row = own_row(workplace, "trainer: {max_epochs: 3}\n")
    with pytest.raises(UserError, match=r"experiment=\.\.\. must start with `# @package _global_`"):
        workplace.train(row)
