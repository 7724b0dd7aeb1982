"""Every experiment file: composed, instantiated, trained for a step; and its place in a table."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from graph_data import REPOSITORY
from phantomgrad.cli import names
from phantomgrad.records import read_record
from phantomgrad.runs import hash_config
from training import Workplace, composed

CONFIGS = REPOSITORY / "configs"
ROWS = names("experiment")
TABLES = names("table")
PAPER = REPOSITORY / "results" / "paper.csv"


def text(row: str) -> str:
    return (CONFIGS / "experiment" / f"{row}.yaml").read_text()


def rows_of(table: str) -> list[str]:
    """The rows that a table file launches, in order."""
    content = yaml.safe_load((CONFIGS / "table" / f"{table}.yaml").read_text())
    listed = content["hydra"]["sweeper"]["params"]["experiment"]
    return [row.strip() for row in listed.split(",")]


def resolved(row: str) -> dict[str, Any]:
    from phantomgrad.jobs import as_dict

    return as_dict(composed([f"experiment={row}"]))


def test_there_are_rows_and_tables() -> None:
    assert len(ROWS) >= 20
    assert {"chains", "table4"} <= set(TABLES)


@pytest.mark.parametrize("row", ROWS)
def test_row_trains(workplace: Workplace, small_tu: Path, row: str) -> None:
    """One step and one evaluation through the real entry, on small data, with a record."""
    small = [f"dataset.root={small_tu}"] if row.startswith(("table4/", "figure2/")) else []
    folder = workplace.train(
        f"experiment={row}", "trainer.max_epochs=1", "+trainer.limit_train_batches=1", *small
    )
    record = read_record(folder / "record.json")
    assert (record.row, record.protocol) == (row, "reduced")
    assert set(record.label) == {"dataset", "model", "method"}
    assert 0 <= record.result.best <= 1
    assert record.solver["converged"] == 1
    config = record.config
    assert record.label["method"] == method(config["run"]["gradient"], config["gradient"])
    if "name" in config["dataset"]:
        assert record.label["dataset"] == config["dataset"]["name"]


def method(name: str, gradient: dict[str, Any]) -> str:
    """How the paper calls a gradient."""
    if name in ("implicit", "one_step"):
        return name.capitalize().replace("_", "-")
    return f"{name.upper()} A({gradient['steps']}, {float(gradient['damping'])})"


@pytest.mark.parametrize("row", ROWS)
def test_row_says_what_it_is_and_how_to_run_it(row: str) -> None:
    """Package line, what it reproduces, its own command, and where its numbers are."""
    package, title, command, price, *_ = text(row).splitlines()
    assert package == "# @package _global_"
    assert title.startswith("# ")
    pattern = rf"#   python scripts/train\.py experiment={re.escape(row)}( (seed|dataset\.fold)=0)?"
    assert re.fullmatch(pattern, command)
    assert re.search(r"About .* s a (fold|seed) on one CPU core\.", price)
    table = row.split("/")[0]
    assert f"Ours: results/tables/{table}.md." in price


def test_every_row_belongs_to_one_table() -> None:
    listed = [row for table in TABLES for row in rows_of(table)]
    assert sorted(listed) == ROWS


@pytest.mark.parametrize("table", TABLES)
def test_table_names_its_own_command(table: str) -> None:
    content = (CONFIGS / "table" / f"{table}.yaml").read_text()
    assert f"#   python scripts/train.py table={table}\n" in content
    assert yaml.safe_load(content)["hydra"]["mode"] == "MULTIRUN"
    assert all(row.startswith(f"{table}/") for row in rows_of(table))


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.usefixtures("workplace")
def test_no_two_rows_of_a_table_are_the_same_experiment(table: str) -> None:
    """A row of Figure 2 is one of Table 4, looked at: what looks on is no part of the hash."""
    rows = rows_of(table)
    assert len({hash_config(resolved(row)) for row in rows}) == len(rows)


@pytest.mark.parametrize("row", [row for row in ROWS if row.startswith("figure2/")])
@pytest.mark.usefixtures("workplace")
def test_figure2_looks_at_rows_of_table4(row: str) -> None:
    """The same protocol, and about a hundred points."""
    config, other = resolved(row), resolved(row.replace("figure2/", "table4/"))
    assert hash_config(config) == hash_config(other)
    steps = config["trainer"]["max_epochs"] * 4  # batches of 128 of the 421 graphs of a fold
    assert steps / config["callbacks"]["precision"]["every_n_steps"] == 100
    assert "precision" not in other["callbacks"]


@pytest.mark.parametrize("row", [row for row in ROWS if row.startswith("table4/")])
@pytest.mark.usefixtures("workplace")
def test_table4_follows_its_protocol(row: str) -> None:
    config = resolved(row)
    honest = row.startswith("table4/honest/")
    dataset = config["dataset"]
    assert (dataset["folds"], dataset["batch_size"], config["seed"]) == (10, 128, 42)
    assert dataset["split"] == ("stratified" if honest else "authors")
    assert dataset["test_edge_weight"] == (1.0 if honest else 2.0)
    assert config["trainer"]["max_epochs"] == 200
    assert (config["optimizer"]["lr"], config["optimizer"]["weight_decay"]) == (0.001, 0)
    assert (config["schedule"]["milestones"], config["schedule"]["gamma"]) == ([50], 0.5)
    model = config["model"]
    assert [model[k] for k in ("channels", "layers", "dropout", "kappa")] == [64, 3, 0.5, 0.9]
    solver = config["solver"]
    assert (solver["max_evaluations"], solver["tol"], solver["norm"]) == (300, 3e-6, "max")
    assert config["reduced"] == []


def test_rows_of_the_paper_are_in_its_numbers() -> None:
    if not PAPER.exists():
        pytest.skip("results/paper.csv is not there")
    with PAPER.open(newline="") as file:
        published = {line["row"] for line in csv.DictReader(file)}
    claimed = {row for row in ROWS if "Paper: results/paper.csv" in text(row)}
    assert claimed == set(ROWS) & published
    ours_alone = {row for row in ROWS if "not in the paper" in text(row).lower()}
    assert claimed | ours_alone == set(ROWS)
    assert {f"table4/{name}_implicit" for name in ("cox2", "proteins")} <= claimed
    assert all("honest" not in row and "npg" not in row for row in claimed)


@pytest.mark.parametrize(
    "path", sorted(p for p in CONFIGS.rglob("*.yaml") if p.parent.name != "table"), ids=str
)
def test_configuration_files_are_short(path: Path) -> None:
    """A leaf fits on a screen; only the roots and the lists of rows are longer."""
    lines = path.read_text().splitlines()
    assert len(lines) <= (60 if path.parent == CONFIGS else 30)
    assert all(len(line) <= 120 for line in lines)


@pytest.mark.usefixtures("workplace")
def test_every_choice_of_every_group_composes() -> None:
    """No file lies about that nothing can choose."""
    from phantomgrad.jobs import as_dict

    groups = [p.name for p in CONFIGS.iterdir() if p.is_dir() and p.name not in ("table", "hydra")]
    for group in sorted(groups):
        if group != "experiment":
            for choice in names(group):
                assert as_dict(composed([f"{group}={choice}"]))
