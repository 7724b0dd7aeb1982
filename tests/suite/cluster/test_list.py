"""A table as a list of commands, each of which is the run that the table would start."""

import shlex

import pytest
from hydra.core.hydra_config import HydraConfig
from training import composed

from phantomgrad_suite.jobs.compose import identity_of

FIGURE3 = "figure3/digits/implicit"


def identity_of_line(arguments, root):
    """The identity of a run, as the script sees it."""
    identity = identity_of(composed(arguments, root=root))
    assert HydraConfig.get().mode.name == "RUN"
    return identity


@pytest.mark.parametrize(
    ("table", "row", "runs"),
    [
        ("tune=lambda gradient.damping=0.1,0.2", "tune/digits/upg_k5_d0.5/upg_k5_d0.1", 2),
        ("table=figure3_digits gradient=npg gradient.steps=1", f"{FIGURE3}/npg_k1_d0.25", 9),
        ("study=figure4/*", "figure4/linear", 3),
        ("experiment=digits/*_step seed=0,1", "digits/one_step", 2),
        ("experiment=digits/one_step seed=0,1", "digits/one_step", 2),
    ],
)
def test_listed_commands_are_the_runs_of_the_table(
    script, study_script, workplace, table, row, runs
):
    """They have the same rows and folders, and no changes."""
    script.always = ()
    root, used = ("study", study_script) if "study" in table else ("train", script)
    outcome = used(*table.split(), "cluster=list")
    assert outcome.code == 0
    lines = [shlex.split(line) for line in outcome.out.splitlines()]
    assert len(lines) == runs
    assert {tuple(line[:2]) for line in lines} == {("python", str(used.path))}
    assert not list(workplace.path.rglob(".lock"))
    first = identity_of_line(lines[0][2:], root)
    assert (first.row, first.instance.split("-")[0], first.changes) == (row, "seed0", ())


@pytest.mark.parametrize(
    "line",
    [
        "table=table4 experiment=table4/cox2_upg_k5_d0.5 gradient.steps=9 label.reduced=[k]",
        "study=gradients/* setting.products=3",
    ],
)
def test_tables_and_patterns_take_settings_of_their_rows(script, study_script, line):
    """Hydra would refuse a setting that the configuration without any row lacks."""
    arguments = line.split()
    outcome = (study_script if "study" in line else script)(*arguments, "cluster=list")
    assert (outcome.code, outcome.err) == (0, "")
    listed = [shlex.split(command) for command in outcome.out.splitlines()]
    assert listed
    assert all({*arguments} - {arguments[0]} <= {*command} for command in listed)


def test_a_table_at_a_scale_has_seeds_of_its_own(script):
    """And rows of its own, which the plan of the table shares with the sweep."""
    lines = script("table=table3_vision", "scale=cpu", "cluster=list").out.splitlines()
    assert len(lines) == 2 * 5
    assert " seed=4 experiment=table3/cifar10_upg table=table3_vision " in lines[-1]
    outcome = script("table=chains", "scale=cpu", "cluster=list")
    assert outcome.code == 1
    assert outcome.err.startswith("there is no scale 'cpu' of ignn_nodes")
