"""The files of studies and suites: their headers, what they build, and that suites list them."""

import re

import pytest
from experiments.rows import file
from training import composed

from phantomgrad_suite.jobs.compose import as_dict
from phantomgrad_suite.runs.configs import choices
from phantomgrad_suite.runs.identity import hash_config
from phantomgrad_suite.studies import Study

STUDIES = choices("study")


@pytest.mark.parametrize("study", STUDIES)
def test_header_names_title_command_and_price(study):
    """After the package line it has what is reproduced, the command, the time and the table."""
    package, title, command, price, *_ = file(f"study/{study}").read_text().splitlines()
    assert package == "# @package _global_"
    assert re.match(
        r"# (Figure|Table|Theorem) \d|# (Baselines|Gradients|Reasoners|Speed and memory)\b", title
    )
    assert command == f"#   python scripts/study.py study={study}"
    artifact = study.split("/")[0]
    assert re.fullmatch(
        rf"# (About \d+ s on one CPU core|Not timed yet)\. Ours: results/tables/{artifact}\.md\.",
        price,
    )


@pytest.mark.usefixtures("workplace")
def test_studies_compose_and_build():
    """A file sets every setting, so that the record shows all of them; no two are the same."""
    from hydra.utils import instantiate

    hashes = set()
    for study in STUDIES:
        config = as_dict(composed([f"study={study}"], root="study"))
        built = instantiate(config["setting"])
        assert isinstance(built, Study)
        shown = {k for k in config["setting"] if not k.startswith("_")}
        shown |= config["runtime"].get("setting", {}).keys()  # paths
        assert shown == set(built.__dataclass_fields__)
        assert config["seed"] == 0
        hashes.add(hash_config(config))
    assert len(hashes) == len(STUDIES)
