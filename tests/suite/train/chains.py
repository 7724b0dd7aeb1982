"""A short run on the chains, and its row made shorter in a file of the test's own."""

import shutil
from pathlib import Path

from training import Workplace

EPOCHS = 6
ROW = "experiment=chains/upg_k5_d0.5"
CHAINS = (ROW, f"trainer.max_epochs={EPOCHS}", "runtime.checkpoint.every_n_epochs=2")


def own_configs(workplace: Workplace) -> Path:
    """Give the workplace a copy of the configuration files, to be changed at will."""
    copy = workplace.path / "configs"
    shutil.copytree(workplace.configs, copy)
    workplace.configs = copy
    return copy


def shorten(workplace: Workplace, epochs: int) -> Path:
    """Make the row shorter in its own file, which is no deviation from it; return the file."""
    row = own_configs(workplace) / "experiment" / "chains" / "upg_k5_d0.5.yaml"
    row.write_text(f"{row.read_text()}trainer: {{max_epochs: {epochs}}}\n")
    return row


def own_row(workplace: Workplace, text: str) -> str:
    """Add a row with this text to files of the workplace's own; return its override."""
    row = own_configs(workplace) / "experiment" / "chains" / "mine.yaml"
    row.write_text(text)
    return "experiment=chains/mine"
