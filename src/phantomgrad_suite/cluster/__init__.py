"""The runs of a table as commands of their own: listed, several at once, or as SLURM's jobs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig

from phantomgrad_suite.cluster.command import Command
from phantomgrad_suite.cluster.local import run_all
from phantomgrad_suite.cluster.slurm import submit

__all__ = ["Command", "launch"]


def launch(commands: Sequence[Command], settings: DictConfig, runs: Path) -> None:
    """Print, run or submit ``commands``.

    Args:
        commands: one for each run.
        settings: of ``configs/cluster``.
        runs: the folder of all runs.

    Raises:
        UserError: a setting cannot be met, or a run has failed.
    """
    script = Path(sys.argv[0])
    if settings.kind == "list":
        print(*(command.line(script) for command in commands), sep="\n", flush=True)
    elif settings.kind == "local":
        run_all(commands, settings, script.resolve())
    else:
        submit(commands, settings, script.resolve(), runs / ".cluster")
