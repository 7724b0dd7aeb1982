"""A whole study in the time of a test."""

from pathlib import Path

from train.chains import own_configs
from training import Workplace

STUDY = "study=figure1/tanh"
SETTING = ("size: 16", "rows: 2", "samples: 7", "batch: 4", "steps: [1, 2]")
TINY = (STUDY, *(f"setting.{line.replace(': ', '=').replace(' ', '')}" for line in SETTING))


def own_study(workplace: Workplace, *lines: str) -> Path:
    """Make the study tiny in its own file, which is no deviation from it; return the file."""
    path = own_configs(workplace) / "study" / "figure1" / "tanh.yaml"
    target = "{_target_: phantomgrad_suite.studies.Precision, _convert_: all"
    path.write_text(
        "\n".join(["# @package _global_", *lines, f"setting: {target}, {', '.join(SETTING)}}}"])
    )
    return path
