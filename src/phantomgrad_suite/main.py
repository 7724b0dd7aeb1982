"""The installed command ``phantomgrad``: the scripts of the experiments, from any folder."""

import runpy
import sys
from typing import NoReturn

from phantomgrad_suite.runs.configs import ROOT

_COMMANDS = (
    *("fetch_data", "train", "study", "report", "compare", "status", "verify", "show"),
    "export_wandb",
)
USAGE = f"""usage: phantomgrad {{{",".join(_COMMANDS)}}} [ARGUMENT ...]

Experiments on implicit models. phantomgrad COMMAND is python scripts/COMMAND.py of a checkout;
runs/ and data/ are those of the current folder. For example:

  phantomgrad train experiment=digits/upg_k5_d0.5
  phantomgrad report yours=runs/results
  phantomgrad verify --help"""


def main() -> NoReturn:
    """Execute the script of the first argument with the others, and exit."""
    command = (*sys.argv[1:], "--help")[0]
    if command in ("-h", "--help", "help"):
        print(USAGE)
        sys.exit(0)
    if command not in _COMMANDS:
        sys.exit(f"phantomgrad has no command {command}: choose from {', '.join(_COMMANDS)}")
    script = ROOT / "scripts" / f"{command}.py"
    sys.argv = [str(script), *sys.argv[2:]]
    runpy.run_path(str(script), run_name="__main__")
    sys.exit(0)
