"""Rows follow the paper's protocols on graphs and images, setting by setting."""

from __future__ import annotations

import pytest
from experiments.rows import ROWS, effective, identity, resolved

from phantomgrad_suite.runs.identity import hash_config


@pytest.mark.parametrize("row", [row for row in ROWS if row.startswith("figure2/")])
@pytest.mark.usefixtures("workplace")
def test_figure2_looks_at_rows_of_other_tables(row: str) -> None:
    """The same protocol, and about a hundred points."""
    leaf = row.removeprefix("figure2/")
    digits = leaf.startswith("digits_")
    config = effective(row)
    other = effective(leaf.replace("digits_", "digits/") if digits else f"table4/{leaf}")
    assert hash_config({**config, "measure": {}}) == hash_config(other)
    # Batches of 64 of 1,078 digits, of 128 of the 421 graphs of a fold.
    steps = config["trainer"]["max_epochs"] * (17 if digits else 4)
    assert steps / config["measure"]["precision"]["every_n_steps"] == (85 if digits else 100)
    assert other["measure"] == {}


@pytest.mark.parametrize("row", [row for row in ROWS if row.startswith("table4/ppi_")])
@pytest.mark.usefixtures("workplace")
def test_table4_follows_its_protocol_on_ppi(row: str) -> None:
    config = effective(row)
    assert config["dataset"]["_target_"] == "phantomgrad_suite.data.PPI"
    assert (config["dataset"]["name"], config["dataset"]["scale"]) == ("PPI", 1.0)
    assert config["trainer"]["max_epochs"] == 1000
    assert config["trainer"]["gradient_clip_val"] is None
    assert (config["optimizer"]["lr"], config["optimizer"]["weight_decay"]) == (0.005, 0)
    assert config["schedule"]["factor"] == 1
    assert config["model"]["channels"] == [1024, 512, 512, 256]
    assert config["model"]["kappa"] == 0.98
    solver = config["solver"]
    assert (solver["max_evaluations"], solver["tol"]) == (300, 3e-6)
    assert (solver["norm"], solver["stop"]) == ("max", "relative")
    assert config["measure"]["collapse"]["stop"] is False
    assert config["label"]["reduced"] == []


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.startswith("table4/") and "ppi_" not in row]
)
@pytest.mark.usefixtures("workplace")
def test_table4_follows_its_protocol(row: str) -> None:
    config = effective(row)
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
    assert config["label"]["reduced"] == []


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
        config = effective(f"table1/{leaf}")
        assert config["optimizer"]["_target_"] == f"torch.optim.{optimizer}"
        rate = (0.001, 0.0) if optimizer == "Adam" else (0.1, 1e-4)
        assert (config["optimizer"]["lr"], config["optimizer"]["weight_decay"]) == rate
        assert config["optimizer"].get("nesterov", False) is False
        assert config["model"]["dropout"] == dropout
        task = config["task"]
        assert (task.get("pretraining_steps", 0), task["schedule_by"]) == (pretraining, "step")
        assert task.get("pretraining_layers", 10) == 10
        form = (
            config["runtime"]["run"]["gradient"],
            *map(config["gradient"].get, ("steps", "damping")),
        )
        assert form == gradient
        shows_image = [config["gradient"].get(key) == "image" for key in ("at", "value")]
        assert shows_image == [form[0] == "implicit", form[0] == "npg"]
        assert (config["trainer"]["max_epochs"], config["dataset"]["batch_size"]) == (50, 128)
        assert config["dataset"]["augment"] is False
        assert (config["solver"]["max_evaluations"], config["schedule"]["minimum"]) == (23, 1e-6)
        assert config["label"]["reduced"] == []


@pytest.mark.usefixtures("workplace")
def test_table3_on_images_follows_its_protocol() -> None:
    large = [effective(f"table3/cifar10_{name}") for name in ("implicit", "upg")]
    for config, dropout, pretraining in zip(large, (0.3, 0.0), (20_000, 0), strict=True):
        assert (config["trainer"]["max_epochs"], config["dataset"]["augment"]) == (220, True)
        assert config["model"]["dropout"] == dropout
        assert config["task"].get("pretraining_steps", 0) == pretraining
        assert config["solver"]["max_evaluations"] == 19
    small = [effective(f"table3/imagenet_{name}") for name in ("implicit", "upg")]
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
