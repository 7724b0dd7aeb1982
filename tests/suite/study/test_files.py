"""The files of studies and suites: what they build, and that suites list them."""

import pytest
from training import composed

from phantomgrad_suite.jobs.compose import as_dict
from phantomgrad_suite.runs.configs import choices
from phantomgrad_suite.runs.identity import hash_config
from phantomgrad_suite.studies import Study

STUDIES = choices("study")


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
