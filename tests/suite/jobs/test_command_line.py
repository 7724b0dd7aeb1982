"""Mistakes on a command line are reported in one line, before anything runs."""

import re

import pytest
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
        ("experiment=chains/implicit seed", r"cannot read the overrides: "),
        ("label.method=[1", r"cannot read the overrides: "),
        ("experimnt=chains/implicit", NO_SETTING + r"'experimnt'; .* are experiment=\.\.\."),
        ("table=chains table=digits", "table=chains table=digits: a command runs one table or su"),
        ("hydra.run.dir=/proc/none", r".*No such file or directory: '/proc/none'"),
        ("runtime.paths.runs=/dev/null", ".*/.hydra'; runtime.paths.runs must be a folder"),
        ("experiment=null", "Config group override must be a string"),
    ],
)
def test_mistakes_are_reported_in_one_line(script, line, message):
    outcome = script(*line.split())
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (1, "", 1)
    assert re.match(message, outcome.err)


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
