"""Rows follow the paper's protocols, setting by setting; those made small keep to them."""

import re
from pathlib import Path

import pytest
import yaml
from experiments.rows import ROWS, effective

from phantomgrad_suite.runs.identity import hash_config

PROTOCOLS = yaml.safe_load(Path(__file__).with_name("protocols.yaml").read_text())


def differing(config, expected, key=""):
    """The settings of ``expected`` that ``config`` has not."""
    if isinstance(expected, dict) and isinstance(config, dict):
        for name, value in expected.items():
            yield from differing(config.get(name), value, f"{key}.{name}")
    elif config != expected:
        yield f"{key[1:]} is {config!r}, not {expected!r}"


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize("row", [row for row in ROWS if re.match(r"table[134]/", row)])
def test_row_follows_its_protocol(row):
    found = [settings for rows, settings in PROTOCOLS.items() if re.fullmatch(rows, row)]
    assert found, f"protocols.yaml has nothing on {row}"
    config = effective(row)
    assert [line for settings in found for line in differing(config, settings)] == []


def test_every_protocol_is_of_some_row():
    assert [rows for rows in PROTOCOLS if not any(re.fullmatch(rows, row) for row in ROWS)] == []


@pytest.mark.usefixtures("workplace")
def test_language_models_train_for_300_000_steps():
    for row in (row for row in ROWS if "/wikitext103_" in row):
        config = effective(row)
        steps = config["dataset"]["segments_per_epoch"]
        assert config["trainer"]["max_epochs"] * steps == 300_000
        if row.endswith("implicit"):
            assert config["gradient"]["solver"] == config["adjoint"]


@pytest.mark.parametrize("row", [row for row in ROWS if row.startswith("figure2/")])
@pytest.mark.usefixtures("workplace")
def test_figure2_looks_at_rows_of_other_tables(row):
    """The protocols are equal, and some hundred points are measured."""
    data, _, method = row.removeprefix("figure2/").partition("_")
    config = effective(row)
    plain = method if method == "implicit" else f"{method}_no_dropout"
    looked_at = {"digits": f"digits/{method}", "cifar10": f"table1/{plain}"}
    other = effective(looked_at.get(data, f"table4/{data}_{method}"))
    assert hash_config({**config, "measure": {}}) == hash_config(other)
    # Batches of 64 of 1,078 digits, of 128 of the 421 graphs of a fold and of 50,000 images.
    steps = config["trainer"]["max_epochs"] * {"digits": 17, "cox2": 4, "cifar10": 391}[data]
    points = steps / config["measure"]["precision"]["every_n_steps"]
    assert points == {"digits": 85, "cox2": 100, "cifar10": 156.4}[data]
    assert other["measure"] == {}
