"""Every experiment and table file: its header, its place in a table, and its length."""

import csv
import re

import pytest
from experiments.rows import CONFIGS, LISTS, ROWS, SWEEPS, TABLES, file, resolved, rows_of, text
from graph_data import REPOSITORY
from report.conftest import PUBLISHED
from training import composed

from phantomgrad_suite.jobs.compose import as_dict
from phantomgrad_suite.runs.configs import choices
from phantomgrad_suite.runs.identity import hash_config
from phantomgrad_suite.runs.plan import tables

PAPER = REPOSITORY / "results" / "paper.csv"


@pytest.mark.parametrize("row", ROWS)
def test_header_of_a_row(row):
    """It has the package line, what the row reproduces, its command, and where its numbers are."""
    package, title, command, price, *_ = text(row).splitlines()
    assert package == "# @package _global_"
    assert title.startswith("# ")
    pattern = rf"#   python scripts/train\.py experiment={re.escape(row)}( (seed|dataset\.fold)=0)?"
    assert re.fullmatch(pattern, command)
    assert re.search(r"About .* s per (fold|seed) on one CPU core\.|Not timed yet\.", price)
    table = row.split("/")[0]
    assert f"Ours: results/tables/{table}.md." in price


def test_every_row_belongs_to_one_table():
    """A sweep has rows of its own, and varies an experiment that some table lists."""
    own = [table for table in LISTS if not table.endswith("_seeds")]
    assert sorted(row for table in own for row in rows_of(table)) == ROWS
    for table in set(tables(CONFIGS)) - {*TABLES}:  # of a scale
        assert set(rows_of(table)) <= set(rows_of(table.split("/")[1]))
    assert {row for table in SWEEPS for row in rows_of(table)} <= set(ROWS)


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize("table", TABLES)
def test_table_names_its_own_command_and_launches_its_rows(table):
    from hydra.core.hydra_config import HydraConfig

    content = file(f"table/{table}").read_text()
    assert content.startswith("# @package _global_\n")
    # A table cannot start the processes of rows on several devices, a queue can.
    several = any(resolved(row)["trainer"].get("devices", 1) != 1 for row in rows_of(table))
    queue = " cluster=slurm" if several else ""
    assert f"#   python scripts/train.py table={table}{queue}\n" in content
    composed([f"table={table}"])
    assert HydraConfig.get().mode.name == "MULTIRUN"
    launched = HydraConfig.get().sweeper.params["experiment"].split(",")
    assert [row.strip() for row in launched] == rows_of(table)
    assert HydraConfig.get().runtime.choices["experiment"] == rows_of(table)[0]


@pytest.mark.parametrize("table", LISTS)
@pytest.mark.usefixtures("workplace")
def test_no_two_rows_of_a_table_are_the_same_experiment(table):
    rows = rows_of(table)
    assert len({hash_config(resolved(row)) for row in rows}) == len(rows)


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize("name", [*ROWS, *choices("study")])
def test_published_records_are_those_of_the_files(name):
    """Their hash is that of the row or the study as its file has it now."""
    row = name in ROWS
    config = resolved(name) if row else as_dict(composed([f"study={name}"], root="study"))
    for record in (r for (found, _), r in PUBLISHED.records.items() if found == name):
        assert record.config_hash == hash_config(config), record.instance


def test_rows_of_the_paper_are_in_its_numbers():
    if not PAPER.exists():
        pytest.skip("results/paper.csv is not there")
    with PAPER.open(newline="") as file:
        published = {line["row"] for line in csv.DictReader(file)}
    claimed = {row for row in ROWS if "Paper: results/paper.csv" in text(row)}
    assert claimed == set(ROWS) & published
    ours_alone = {row for row in ROWS if "not in the paper" in text(row).lower()}
    assert claimed | ours_alone == set(ROWS)
    assert {f"table4/{name}_implicit" for name in ("cox2", "proteins")} <= claimed
    assert not [row for row in claimed if "honest" in row or ("table4" in row and "npg" in row)]


@pytest.mark.usefixtures("workplace")
def test_every_choice_of_every_group_composes():
    """Other tests compose the tables, scales, searches, experiments and studies."""
    others = ("experiment", "table", "scale", "tune", "study", "suite", "hydra")
    groups = [p.name for p in CONFIGS.iterdir() if p.is_dir() and p.name not in others]
    known = {group: choices(group) for group in groups}
    for i in range(max(map(len, known.values()))):
        assert as_dict(composed([f"{group}={own[i % len(own)]}" for group, own in known.items()]))
