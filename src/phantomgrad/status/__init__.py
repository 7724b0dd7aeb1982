"""How far the tables are: what of their runs is done, running, failed, stopped or missing.

Read from files alone, in a moment: the table files say which runs there are to be, the run folders
what has become of them. No torch, no Hydra.
"""

from phantomgrad.status.command import main
from phantomgrad.status.folders import (
    STATES,
    Run,
    Standing,
    examine,
    look_again,
    run_folders,
    standing,
)
from phantomgrad.status.plan import expected, tables

__all__ = [
    "STATES",
    "Run",
    "Standing",
    "examine",
    "expected",
    "look_again",
    "main",
    "run_folders",
    "standing",
    "tables",
]
