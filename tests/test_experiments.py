"""Every experiment file: composed, instantiated, trained for a step; and its place in a table."""

from __future__ import annotations

import csv
import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from graph_data import REPOSITORY
from phantomgrad.cli import names
from phantomgrad.records import read_record
from phantomgrad.runs import Identity, hash_config
from training import Script, Workplace, composed

CONFIGS = REPOSITORY / "configs"
ROWS = names("experiment")
TABLES = names("table")
PAPER = REPOSITORY / "results" / "paper.csv"


def text(row: str) -> str:
    return (CONFIGS / "experiment" / f"{row}.yaml").read_text()


def content(table: str) -> dict[str, Any]:
    return yaml.safe_load((CONFIGS / "table" / f"{table}.yaml").read_text())  # type: ignore[no-any-return]


def rows_of(table: str) -> list[str]:
    """The rows that a table file launches, in order."""
    listed = content(table)["hydra"]["sweeper"]["params"]["experiment"]
    return [row.strip() for row in listed.split(",")]


def is_sweep(table: str) -> bool:
    """Whether a table varies settings of one experiment, and names its rows by them."""
    bases = [name for name in content(table).get("defaults", []) if name != "_self_"]
    return "sweep" in content(table) or any(is_sweep(base) for base in bases)


SWEEPS = [table for table in TABLES if is_sweep(table)]
LISTS = [table for table in TABLES if table not in SWEEPS]


def resolved(row: str) -> dict[str, Any]:
    from phantomgrad.jobs import as_dict

    return as_dict(composed([f"experiment={row}"]))


def test_there_are_rows_and_tables() -> None:
    assert len(ROWS) >= 20
    assert {"chains", "table4"} <= set(LISTS)
    assert {"figure3", "figure3_cox2"} <= set(SWEEPS)


ON_GRAPHS = ("table4/", "figure2/cox2")
ON_IMAGES = ("table1/", "table3/cifar10", "table3/imagenet", "cifar10-jpeg/")
# MDEQ on images of 32 x 32 and more would take a minute: its own tests know the sizes.
NARROW = (
    *("model.channels=[8,8]", "model.head_channels=[2,2]", "model.features=8"),
    *("solver.max_evaluations=3", "adjoint.max_evaluations=3", "dataset.batch_size=4"),
)


@pytest.mark.parametrize("row", [row for row in ROWS if row.startswith(ON_IMAGES)])
@pytest.mark.filterwarnings("ignore::phantomgrad.AdjointWarning")
def test_row_on_images_trains(
    workplace: Workplace, cifar_root: Path, jpeg_root: Path, folder_root: Path, row: str
) -> None:
    """Likewise, with a narrow model; one process takes the place of several GPUs."""
    on_imagenet, on_jpeg = "imagenet" in row, row.startswith("cifar10-jpeg/")
    root = folder_root if on_imagenet else jpeg_root if on_jpeg else cifar_root
    short = ["trainer.max_epochs=1", "+trainer.limit_train_batches=1", *NARROW]
    if on_imagenet:
        short += ["trainer.strategy=auto", "trainer.devices=1", "dataset.workers=0"]
    record = read_record(
        workplace.train(f"experiment={row}", f"dataset.root={root}", *short) / "record.json"
    )
    assert (record.row, record.protocol) == (row, "reduced")
    assert 0 <= record.result.best <= 1
    gradient = record.config["gradient"]
    if "steps" in gradient and record.config["run"]["gradient"] != "one_step":
        assert f"A({gradient['steps']}, {gradient['damping']})" in record.label["method"]


ON_TEXT = ("table3/wikitext103", "lm/", "wikitext/")
# The 98M parameters of the paper have their own test.
TINY = (
    *("model.width=8", "model.heads=2", "model.inner=16", "model.cutoffs=[20,60]"),
    *("model.shrinkage=2", "solver.max_evaluations=4", "adjoint.max_evaluations=4"),
    *("dataset.batch_size=2", "dataset.segment_length=9", "trainer.max_epochs=1"),
    *("++trainer.strategy=auto", "trainer.devices=1", "+trainer.limit_train_batches=1"),
)


@pytest.mark.parametrize("row", [row for row in ROWS if row.startswith(ON_TEXT)])
@pytest.mark.filterwarnings("ignore::phantomgrad.AdjointWarning")
def test_row_on_texts_trains(workplace: Workplace, text_root: Path, row: str) -> None:
    """Likewise, with a narrow model, at an equilibrium and with the penalty where there is one."""
    small = [*TINY, "task.pretraining_steps=0", "+trainer.limit_val_batches=2"]
    if "_jr_" in row:
        small.append("task.jacobian.frequency=1")
    if not row.startswith("lm/"):
        small.append(f"dataset.root={text_root}")
    record = read_record(workplace.train(f"experiment={row}", *small) / "record.json")
    assert (record.row, record.protocol) == (row, "reduced")
    assert set(record.label) == {"dataset", "model", "method"}
    assert (record.result.metric, record.result.mode) == ("perplexity", "min")
    assert 10 < record.result.best < 1e4
    assert ("train/jacobian" in record.curves) is ("_jr_" in row)
    config = record.config
    form = method(config["run"]["gradient"], config["gradient"])
    assert record.label["method"] == ("JR + " if "_jr_" in row else "") + form
    assert record.label["model"] == f"DEQ ({'PreLN' if config['model']['pre_norm'] else 'PostLN'})"


ON_PPI = ("table4/ppi", "ppi/")


@pytest.mark.parametrize("row", [row for row in ROWS if row.startswith(ON_PPI)])
def test_row_on_ppi_trains(workplace: Workplace, row: str) -> None:
    """Likewise, with a narrow model on small random graphs, which are never called PPI."""
    full = row.startswith("table4/")
    assert resolved(row)["label"]["dataset"] == ("PPI" if full else "ppi-synthetic")
    small = ["model.channels=[8,4]", "dataset.scale=0.005", "trainer.max_epochs=1"]
    if full:
        small.append("dataset=ppi_synthetic")
    record = read_record(
        workplace.train(f"experiment={row}", *small, "+trainer.limit_train_batches=1")
        / "record.json"
    )
    assert (record.row, record.protocol) == (row, "reduced")
    assert record.label["dataset"] == record.data["name"] == "ppi-synthetic"
    assert (record.result.metric, record.result.mode) == ("micro_f1", "max")
    assert 0 <= record.result.best <= 1
    assert record.result.selected == record.result.best
    assert record.curves["collapse/loss"] == [0]
    config = record.config
    assert record.label["method"] == method(config["run"]["gradient"], config["gradient"])


ELSEWHERE = (*ON_IMAGES, *ON_TEXT, *ON_PPI)


@pytest.mark.parametrize("row", [row for row in ROWS if not row.startswith(ELSEWHERE)])
def test_row_trains(workplace: Workplace, small_tu: Path, row: str) -> None:
    """One step and one evaluation through the real entry, on small data, with a record."""
    small = [f"dataset.root={small_tu}"] if row.startswith(ON_GRAPHS) else []
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
    assert re.search(r"About .* s a (fold|seed) on one CPU core\.|Not timed yet\.", price)
    table = row.split("/")[0]
    assert f"Ours: results/tables/{table}.md." in price


def test_every_row_belongs_to_one_table() -> None:
    """A sweep has rows of its own, and varies an experiment that some table lists."""
    listed = [row for table in LISTS for row in rows_of(table)]
    assert sorted(listed) == ROWS
    assert {row for table in SWEEPS for row in rows_of(table)} <= set(ROWS)


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize("table", TABLES)
def test_table_names_its_own_command_and_launches_its_rows(table: str) -> None:
    from hydra.core.hydra_config import HydraConfig

    said = (CONFIGS / "table" / f"{table}.yaml").read_text()
    assert said.startswith("# @package _global_\n")
    # A table cannot start the processes of rows on several devices, a queue can.
    several = any(resolved(row)["trainer"].get("devices", 1) != 1 for row in rows_of(table))
    queue = " cluster=slurm" if several else ""
    assert f"#   python scripts/train.py table={table}{queue}\n" in said
    composed([f"table={table}"])
    assert HydraConfig.get().mode.name == "MULTIRUN"
    launched = HydraConfig.get().sweeper.params["experiment"].split(",")
    assert [row.strip() for row in launched] == rows_of(table)


@pytest.mark.parametrize("table", LISTS)
def test_table_lists_rows_of_its_own_name(table: str) -> None:
    assert all(row.startswith(f"{table.split('_')[0]}/") for row in rows_of(table))


@pytest.mark.parametrize("table", LISTS)
@pytest.mark.usefixtures("workplace")
def test_no_two_rows_of_a_table_are_the_same_experiment(table: str) -> None:
    """A row of Figure 2 is one of Table 4, looked at: what looks on is no part of the hash."""
    rows = rows_of(table)
    assert len({hash_config(resolved(row)) for row in rows}) == len(rows)


@pytest.mark.parametrize("row", [row for row in ROWS if row.startswith("figure2/")])
@pytest.mark.usefixtures("workplace")
def test_figure2_looks_at_rows_of_other_tables(row: str) -> None:
    """The same protocol, and about a hundred points."""
    leaf = row.removeprefix("figure2/")
    digits = leaf.startswith("digits_")
    config = resolved(row)
    other = resolved(leaf.replace("digits_", "digits/") if digits else f"table4/{leaf}")
    assert hash_config(config) == hash_config(other)
    # Batches of 64 of 1,078 digits, of 128 of the 421 graphs of a fold.
    steps = config["trainer"]["max_epochs"] * (17 if digits else 4)
    assert steps / config["callbacks"]["precision"]["every_n_steps"] == (85 if digits else 100)
    assert "precision" not in other["callbacks"]


@pytest.mark.parametrize("row", [row for row in ROWS if row.startswith("table4/ppi_")])
@pytest.mark.usefixtures("workplace")
def test_table4_follows_its_protocol_on_ppi(row: str) -> None:
    config = resolved(row)
    assert config["dataset"] == {
        "_target_": "phantomgrad.data.PPI",
        "name": "PPI",
        "root": "data",
    }
    assert config["trainer"]["max_epochs"] == 1000
    assert "gradient_clip_val" not in config["trainer"]
    assert (config["optimizer"]["lr"], config["optimizer"]["weight_decay"]) == (0.005, 0)
    assert config["schedule"]["factor"] == 1
    assert config["model"]["channels"] == [1024, 512, 512, 256]
    assert config["model"]["kappa"] == 0.98
    solver = config["solver"]
    assert (solver["max_evaluations"], solver["tol"]) == (300, 3e-6)
    assert (solver["norm"], solver["stop"]) == ("max", "relative")
    assert config["callbacks"]["collapse"]["stop"] is False
    assert config["reduced"] == []


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.startswith("table4/") and "ppi_" not in row]
)
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
    assert not [row for row in claimed if "honest" in row or ("table4" in row and "npg" in row)]


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
    """No file lies about that nothing can choose; tables, searches and experiments: see there."""
    from phantomgrad.jobs import as_dict

    for group in sorted(p.name for p in CONFIGS.iterdir() if p.is_dir()):
        root = "study" if group in ("study", "suite") else "train"
        if group not in ("experiment", "table", "tune", "hydra"):
            for choice in names(group):
                assert as_dict(composed([f"{group}={choice}"], root=root))


# Sweeps -------------------------------------------------------------------------------------


def combinations(table: str, row: str | None = None) -> list[list[str]]:
    """The overrides of every run that a sweep launches, but for seeds and folds."""
    from hydra.core.hydra_config import HydraConfig

    composed([f"table={table}"])
    params = dict(HydraConfig.get().sweeper.params)
    varied = {k: str(v).split(",") for k, v in params.items() if k not in ("seed", "dataset.fold")}
    varied["experiment"] = [row or params["experiment"]]
    return [
        [f"{key}={value}" for key, value in zip(varied, values, strict=True)]
        for values in product(*varied.values())
    ]


def identity(table: str, *overrides: str) -> tuple[Identity, dict[str, Any]]:
    """What a run of a table is called, and its resolved configuration."""
    from hydra.core.hydra_config import HydraConfig

    from phantomgrad.jobs import as_dict

    config = as_dict(composed([f"table={table}", *overrides]))
    chosen = HydraConfig.get()
    row = chosen.runtime.choices.get("experiment")
    return Identity.of(config, row, list(chosen.overrides.task)), config


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize(
    ("table", "base", "instance"),
    [
        ("figure3", "digits/implicit", "seed0"),
        ("figure3_cox2", "table4/cox2_implicit", "seed42-fold0"),
    ],
)
def test_sweep_names_its_rows_by_what_it_varies(table: str, base: str, instance: str) -> None:
    """A row for every combination, below the experiment's own, labelled as the paper does."""
    every = combinations(table)
    assert len({tuple(overrides) for overrides in every}) == len(every) == 2 * 4 * 3
    expected = {0: ("upg", 1, 0.25), 7: ("upg", 5, 0.5), 23: ("npg", 9, 1.0)}
    hashes = set()
    for number, (form, k, damping) in expected.items():
        found, config = identity(table, *every[number])
        assert found.row == f"figure3/{base}/{form}_k{k}_d{damping}"
        assert (found.instance, found.changes) == (instance, ())
        assert config["label"]["method"] == f"{form.upper()} A({k}, {damping})"
        hashes.add(found.config_hash)
    assert len(hashes) == 3


@pytest.mark.usefixtures("workplace")
def test_sweep_counts_every_other_override_as_a_change() -> None:
    """Of the settings it varies none, whatever their values."""
    swept = ("gradient=upg", "gradient.steps=7", "gradient.damping=0.9")
    plain, _ = identity("figure3", "experiment=digits/implicit", *swept)
    assert (plain.row, plain.changes) == ("figure3/digits/implicit/upg_k7_d0.9", ())
    for override in ("optimizer.lr=0.5", "label.method=x", "adjoint.tol=1e-9", "sweep.row=mine"):
        other, _ = identity("figure3", "experiment=digits/implicit", *swept, override)
        assert other.changes == (override,)
        assert other.instance == f"seed0-{other.config_hash[:8]}"


@pytest.mark.usefixtures("workplace")
def test_sweep_of_another_experiment_has_rows_of_its_own() -> None:
    """The table's second command: the same grid on the chains."""
    overrides = combinations("figure3", "chains/implicit")[0]
    found, config = identity("figure3", *overrides)
    assert (found.row, found.changes) == ("figure3/chains/implicit/upg_k1_d0.25", ())
    assert config["label"] == {"dataset": "Chains", "model": "IGNN", "method": "UPG A(1, 0.25)"}


@pytest.mark.usefixtures("workplace")
def test_sweep_on_cox2_says_what_it_reduces() -> None:
    """Three of the ten folds; but for that, a point that is a row of Table 4 is that row."""
    from hydra.core.hydra_config import HydraConfig

    overrides = combinations("figure3_cox2")[7]
    assert HydraConfig.get().sweeper.params["dataset.fold"] == "range(3)"
    found, config = identity("figure3_cox2", *overrides)
    assert config["reduced"] == ["3 of 10 folds"]
    assert found.row == "figure3/table4/cox2_implicit/upg_k5_d0.5"
    assert found.config_hash == hash_config(resolved("table4/cox2_upg_k5_d0.5"))


def test_script_runs_a_sweep(script: Script, workplace: Workplace) -> None:
    """Of two points; the short runs are changed ones, so nothing is published."""
    outcome = script(
        *("table=figure3", "experiment=chains/implicit", "gradient=upg", "gradient.steps=1,3"),
        *("gradient.damping=0.5", "seed=0", "trainer.max_epochs=1"),
    )
    assert outcome.code == 0
    folders = workplace.path.glob("runs/figure3/chains/implicit/*/seed0-*")
    assert sorted(f.parent.name for f in folders) == ["upg_k1_d0.5", "upg_k3_d0.5"]
    (path, _) = sorted(workplace.path.glob("runs/figure3/chains/implicit/*/*/record.json"))
    record = read_record(path)
    assert record.row == "figure3/chains/implicit/upg_k1_d0.5"
    assert record.changes == [*record.config["reduced"], "trainer.max_epochs=1"]
    assert record.label["method"] == "UPG A(1, 0.5)"
    assert not (workplace.path / "results").exists()


# The paper's protocols on images ------------------------------------------------------------

# optimizer, dropout, steps of pretraining, (form, k, λ)
TABLE1: dict[str, tuple[str, float, int, tuple[str, int | None, float | None]]] = {
    "implicit": ("Adam", 0.25, 3000, ("implicit", None, None)),
    "no_pretraining": ("Adam", 0.25, 0, ("implicit", None, None)),
    "no_dropout": ("Adam", 0.0, 3000, ("implicit", None, None)),
    "sgd": ("SGD", 0.25, 3000, ("implicit", None, None)),
    "sgd_no_pretraining": ("SGD", 0.25, 0, ("implicit", None, None)),
    "upg_k5_d0.5_no_dropout": ("SGD", 0.0, 0, ("upg", 5, 0.5)),
    "npg_k5_d0.5_no_dropout": ("SGD", 0.0, 0, ("npg", 5, 0.5)),
    "upg_k9_d0.5": ("SGD", 0.25, 0, ("upg", 9, 0.5)),
    "npg_k9_d0.5": ("SGD", 0.25, 0, ("npg", 9, 0.5)),
    "one_step_no_dropout": ("SGD", 0.0, 0, ("one_step", 1, 1.0)),
}


@pytest.mark.usefixtures("workplace")
def test_table1_follows_its_protocol() -> None:
    assert sorted(f"table1/{leaf}" for leaf in TABLE1) == [r for r in ROWS if r[:7] == "table1/"]
    for leaf, (optimizer, dropout, pretraining, gradient) in TABLE1.items():
        config = resolved(f"table1/{leaf}")
        assert config["optimizer"]["_target_"] == f"torch.optim.{optimizer}"
        rate = (0.001, 0.0) if optimizer == "Adam" else (0.1, 1e-4)
        assert (config["optimizer"]["lr"], config["optimizer"]["weight_decay"]) == rate
        assert config["optimizer"].get("nesterov", False) is False
        assert config["model"]["dropout"] == dropout
        task = config["task"]
        assert (task.get("pretraining_steps", 0), task["schedule_by"]) == (pretraining, "step")
        assert task.get("pretraining_layers", 10) == 10
        form = (config["run"]["gradient"], *map(config["gradient"].get, ("steps", "damping")))
        assert form == gradient
        shows_image = [config["gradient"].get(key) == "image" for key in ("at", "value")]
        assert shows_image == [form[0] == "implicit", form[0] == "npg"]
        assert (config["trainer"]["max_epochs"], config["dataset"]["batch_size"]) == (50, 128)
        assert config["dataset"]["augment"] is False
        assert (config["solver"]["max_evaluations"], config["schedule"]["minimum"]) == (23, 1e-6)
        assert config["reduced"] == []


@pytest.mark.usefixtures("workplace")
def test_table3_on_images_follows_its_protocol() -> None:
    large = [resolved(f"table3/cifar10_{name}") for name in ("implicit", "upg")]
    for config, dropout, pretraining in zip(large, (0.3, 0.0), (20_000, 0), strict=True):
        assert (config["trainer"]["max_epochs"], config["dataset"]["augment"]) == (220, True)
        assert config["model"]["dropout"] == dropout
        assert config["task"].get("pretraining_steps", 0) == pretraining
        assert config["solver"]["max_evaluations"] == 19
    small = [resolved(f"table3/imagenet_{name}") for name in ("implicit", "upg")]
    layouts = ((4, 32, "mdeq", 500_000), (8, 16, "phantom", 0))
    for config, (devices, batch, protocol, pretraining) in zip(small, layouts, strict=True):
        assert (config["trainer"]["devices"], config["dataset"]["batch_size"]) == (devices, batch)
        assert config["dataset"]["protocol"] == protocol
        assert config["task"].get("pretraining_steps", 0) == pretraining
        optimizer = config["optimizer"]
        assert (optimizer["lr"], optimizer["weight_decay"]) == (0.05, 5e-5)
        assert optimizer["nesterov"] is True
        assert config["solver"]["max_evaluations"] == 27
    assert (small[1]["gradient"]["steps"], small[1]["gradient"]["damping"]) == (5, 0.6)
    assert [config["gradient"].get("at") for config in (large[0], small[0])] == ["image"] * 2


@pytest.mark.usefixtures("workplace")
def test_jpeg_rows_are_never_those_of_cifar10() -> None:
    found, config = identity("table1_jpeg", "experiment=table1/implicit", "dataset=cifar10_jpeg")
    assert (found.row, found.changes) == ("cifar10-jpeg/table1/implicit", ())
    assert config["label"]["dataset"] == "CIFAR-10 (JPEG)"
    assert found.config_hash != hash_config(resolved("table1/implicit"))


# The paper's protocol on WikiText-103 ---------------------------------------------------------

# PreLN, memory, dropout and that of the attention, steps of the solvers, weight of the penalty
LANGUAGE: dict[str, tuple[bool, int, float, float, int, int | None, float | None]] = {
    "postln_implicit": (False, 150, 0.05, 0.0, 30, 40, None),
    "postln_upg": (False, 150, 0.05, 0.0, 30, None, None),
    "preln_jr_implicit": (True, 300, 0.06, 0.01, 14, 14, 2.0),
    "preln_jr_upg_14": (True, 300, 0.06, 0.01, 14, None, 0.1),
    "preln_jr_upg_20": (True, 300, 0.06, 0.01, 20, None, 0.1),
}


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize("leaf", LANGUAGE)
def test_table3_on_language_follows_its_protocol(leaf: str) -> None:
    config = resolved(f"table3/wikitext103_{leaf}")
    pre_norm, memory, dropout, attention, steps, adjoint, weight = LANGUAGE[leaf]
    model, solver, task = config["model"], config["solver"], config["task"]
    sizes = [model[k] for k in ("width", "heads", "inner", "cutoffs", "shrinkage")]
    assert sizes == [700, 10, 48_000, [20_000, 40_000, 200_000], 4]
    assert (model["pre_norm"], model["memory_length"], model["raw_residual"]) == (
        *(pre_norm, memory),
        False,
    )
    assert (model["dropout"], model["attention_dropout"]) == (dropout, attention)
    # A step of Broyden is an evaluation; the start is one too.
    assert (solver["max_evaluations"], solver["tol"], solver["stop"]) == (
        *(steps + 1, 1e-3),
        "relative",
    )
    if adjoint is None:
        assert (config["gradient"]["steps"], config["gradient"]["damping"]) == (5, 0.8)
    else:
        solver = config["adjoint"]
        assert (config["run"]["gradient"], config["gradient"]["solver"]) == ("implicit", solver)
        assert (solver["max_evaluations"], solver["tol"], solver["stop"]) == (
            *(adjoint + 1, 1e-3),
            "relative",
        )
    assert (task["pretraining_steps"], task["pretraining_layers"]) == (32_000, 2)
    assert task["evaluation_memory"] is None
    if weight is None:
        assert (task["jacobian"], task["budget_jitter"]) == (None, 0)
    else:
        penalty = {k: v for k, v in task["jacobian"].items() if k != "_target_"}
        assert penalty == {
            "weight": weight,
            "frequency": 0.4,
            "increase": 0.1,
            "every": 30_000,
            "from_step": 32_000,
            "samples": 1,
            "through_equilibrium": False,
        }
        assert task["budget_jitter"] == 2
    dataset, trainer, optimizer = (config[k] for k in ("dataset", "trainer", "optimizer"))
    assert trainer["max_epochs"] * dataset["segments_per_epoch"] == 300_000
    assert (trainer["devices"], dataset["batch_size"], dataset["segment_length"]) == (4, 14, 150)
    assert (dataset["name"], dataset["test_batch_size"]) == ("wikitext103", 16)
    assert (trainer["gradient_clip_val"], trainer["precision"]) == (0.25, "32-true")
    assert (optimizer["_target_"], optimizer["lr"]) == ("torch.optim.Adam", 2.5e-4)
    assert optimizer["weight_decay"] == 0
    assert (config["schedule"]["warmup"], task["schedule_by"]) == (16_000, "step")
    assert config["seed"] == 1111
    assert config["reduced"] == []


@pytest.mark.usefixtures("workplace")
def test_small_rows_on_language_are_those_of_the_paper_made_small() -> None:
    """The same solvers, gradients and dropout, on texts that are never called WikiText-103."""
    for row in (row for row in ROWS if row.startswith(("lm/", "wikitext/"))):
        config = resolved(row)
        leaf = row.split("/")[1].removeprefix("pydoc_")
        for ours, papers in (("jr_upg_k5_d0.8", "jr_upg_14"), ("upg_k5_d0.8", "upg")):
            leaf = leaf.replace(ours, papers)
        large = resolved(f"table3/wikitext103_{leaf}")
        assert config["solver"] == large["solver"]
        assert config["gradient"] == large["gradient"]
        for key in ("pre_norm", "dropout", "attention_dropout", "raw_residual"):
            assert config["model"][key] == large["model"][key]
        small, big = config["task"], large["task"]
        assert small["budget_jitter"] == big["budget_jitter"]
        assert (small["jacobian"] is None) is (big["jacobian"] is None)
        if small["jacobian"] is not None:  # of the paper's weights a small model learns little
            assert small["jacobian"]["weight"] <= big["jacobian"]["weight"]
            assert small["jacobian"]["frequency"] == big["jacobian"]["frequency"]
        assert config["label"]["dataset"] in ("Python help", "WikiText-103 (valid)")
        assert config["dataset"].get("name") != "wikitext103"
