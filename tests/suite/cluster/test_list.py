"""A table as a list of commands: alone each is the run that the table would make of it."""

from __future__ import annotations

import shlex

import pytest
from training import Script, Workplace, composed

from phantomgrad_suite.jobs.compose import as_dict
from phantomgrad_suite.runs.identity import Identity, hash_config


def identity_of(line: list[str]) -> Identity:
    """Whose run a command line is, as the training script sees it."""
    from hydra.core.hydra_config import HydraConfig

    plain, chosen = as_dict(composed(line)), HydraConfig.get()
    assert chosen.mode.name == "RUN"
    return Identity.of(plain, chosen.runtime.choices["experiment"], list(chosen.overrides.task))


@pytest.mark.parametrize(
    ("table", "row", "runs"),
    [
        ("table=chains seed=0,1", "chains/implicit", 6),
        ("table=figure3 gradient=npg seed=0", "figure3/digits/implicit/npg_k1_d0.25", 12),
        ("table=table1_jpeg seed=0", "cifar10-jpeg/table1/upg_k5_d0.5_no_dropout", 3),
    ],
)
def test_listed_commands_are_the_runs_of_the_table(
    script: Script, workplace: Workplace, table: str, row: str, runs: int
) -> None:
    """Alone each is the run that the table would make of it: same row, same folder, no change."""
    script.always = ()
    outcome = script(*table.split(), "cluster=list")
    assert outcome.code == 0
    lines = [shlex.split(line) for line in outcome.out.splitlines()]
    assert len(lines) == runs
    assert {tuple(line[:2]) for line in lines} == {("python", str(script.path))}
    assert not list(workplace.path.rglob(".lock"))
    first = identity_of(lines[0][2:])
    assert (first.row, first.instance, first.changes) == (row, "seed0", ())


def test_listed_command_keeps_what_was_overridden(script: Script) -> None:
    outcome = script("experiment=chains/implicit", "seed=3", "optimizer.lr=0.5", "cluster=list")
    (line,) = outcome.out.splitlines()
    assert identity_of(shlex.split(line)[2:]).changes == ("optimizer.lr=0.5",)


def test_cluster_is_a_circumstance() -> None:
    """How a run is started changes neither its name nor its hash."""
    config = {"seed": 0, "model": {"width": 3}}
    other = {**config, "cluster": {"kind": "slurm", "partition": "gpu"}}
    assert hash_config(other) == hash_config(config)
    overrides = ["cluster=slurm", "runtime.cluster.partition=gpu"]
    assert Identity.of(other, "row", overrides) == Identity.of(config, "row", [])


def test_row_that_says_no_number_of_devices_is_refused(script: Script) -> None:
    outcome = script("table=chains", "trainer.devices=auto", "cluster=list")
    assert outcome.code == 1
    assert "trainer.devices must be a number from 1" in outcome.err
    assert outcome.out == ""
