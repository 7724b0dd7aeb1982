"""Every file of a row or table: what it says, and which experiment it is."""

from collections import Counter

import pytest
from experiments.rows import CONFIGS, LISTS, ROWS, SWEEPS, TABLES, resolved, rows_of, text
from report.conftest import PUBLISHED
from training import composed

from phantomgrad_suite.jobs.compose import recorded
from phantomgrad_suite.runs.configs import choices
from phantomgrad_suite.runs.identity import hash_config
from phantomgrad_suite.runs.plan import tables

TWINS = {  # rows of a second table: they are the same experiment under another name
    "digits_gradients/implicit_tol1e-3": "digits/implicit",
    "digits_gradients/upg_k5_d0.5": "digits/upg_k5_d0.5",
    "digits_gradients/npg_k5_d0.5": "digits/npg_k5_d0.5",
    "digits_gradients/one_step": "digits/one_step",
}


@pytest.mark.parametrize("row", ROWS)
def test_a_row_says_in_one_line_what_it_is(row):
    package, *lines = text(row).splitlines()
    assert package == "# @package _global_"
    assert [line for line in lines if line.startswith("#")] == lines[:1]


def test_every_row_belongs_to_one_table():
    """A sweep has rows of its own, and varies an experiment that some table lists."""
    own = [table for table in LISTS if not table.endswith("_seeds")]
    assert sorted(row for table in own for row in rows_of(table)) == ROWS
    for table in set(tables(CONFIGS)) - {*TABLES}:  # of a scale
        assert set(rows_of(table)) <= set(rows_of(table.split("/")[1]))
    assert {row for table in SWEEPS for row in rows_of(table)} <= set(ROWS)


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize("table", TABLES)
def test_table_launches_its_rows(table):
    from hydra.core.hydra_config import HydraConfig

    composed([f"table={table}"])
    assert HydraConfig.get().mode.name == "MULTIRUN"
    launched = HydraConfig.get().sweeper.params["experiment"].split(",")
    assert [row.strip() for row in launched] == rows_of(table)
    assert HydraConfig.get().runtime.choices["experiment"] == rows_of(table)[0]


@pytest.mark.usefixtures("workplace")
def test_no_two_rows_are_the_same_experiment():
    rows = [row for row in ROWS if row not in TWINS]
    hashes = Counter(hash_config(resolved(row)) for row in rows)
    assert [row for row in rows if hashes[hash_config(resolved(row))] > 1] == []
    assert all(hash_config(resolved(a)) == hash_config(resolved(b)) for a, b in TWINS.items())


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize("name", [*ROWS, *choices("study")])
def test_published_records_are_those_of_the_files(name):
    """Their hash is that of the row, also at a scale, or of the study as its file has it now."""
    found = {"": [], "cpu": []}
    for (row, _), record in PUBLISHED.records.items():
        if row.removeprefix("cpu/") == name:
            found["cpu" * row.startswith("cpu/")].append(record)
    if name.startswith("figure2/cifar10_"):
        found.pop("cpu")  # records of an earlier, shorter CPU edition
    for scale, records in found.items():
        if records:
            chosen = [f"experiment={name}", *([f"scale={scale}"] if scale else [])]
            config = composed(chosen) if name in ROWS else composed([f"study={name}"], root="study")
            assert {r.config_hash for r in records} == {hash_config(recorded(config))}


@pytest.mark.usefixtures("workplace")
def test_every_choice_of_every_group_composes():
    """Other tests compose the tables, scales, searches, experiments and studies."""
    others = ("experiment", "table", "scale", "tune", "study", "suite", "hydra")
    groups = [p.name for p in CONFIGS.iterdir() if p.is_dir() and p.name not in others]
    known = {group: choices(group) for group in groups}
    for i in range(max(map(len, known.values()))):
        chosen = [f"{group}={own[i % len(own)]}" for group, own in known.items()]
        assert recorded(composed([*chosen, "++dataset.segment_length=64"]))  # as memories follow it
