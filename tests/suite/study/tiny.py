"""A whole study in the time of a test, and the rows of a suite."""

from pathlib import Path

import yaml
from experiments.rows import file
from train.chains import own_configs
from training import Workplace

from phantomgrad_suite.runs.configs import choices, listed

SUITES = choices("suite")
STUDY = "study=figure1/tanh"
SETTING = ("size: 16", "rows: 2", "samples: 7", "batch: 4", "steps: [1, 2]")
TINY = (STUDY, *(f"setting.{line.replace(': ', '=').replace(' ', '')}" for line in SETTING))


def rows_of(suite: str) -> list[str]:
    content = yaml.safe_load(file(f"suite/{suite}").read_text())
    return listed("study", content["hydra"]["sweeper"]["params"]["study"])


def own_study(workplace: Workplace, *lines: str) -> Path:
    """Make the study tiny in its own file, which is no deviation from it; return the file."""
    path = own_configs(workplace) / "study" / "figure1" / "tanh.yaml"
    target = "{_target_: phantomgrad_suite.studies.Precision, _convert_: all"
    path.write_text(
        "\n".join(["# @package _global_", *lines, f"setting: {target}, {', '.join(SETTING)}}}"])
    )
    return path
