"""The installed command ``phantomgrad``: the scripts of the checkout, from any folder."""

import runpy
import sys
from pathlib import Path
from typing import NoReturn

_COMMANDS = (
    *("fetch_data", "train", "study", "report", "compare", "status", "verify", "show"),
    *("evaluate", "export_wandb"),
)
USAGE = f"""usage: phantomgrad {{{",".join(_COMMANDS)}}} [ARGUMENT ...]

phantomgrad COMMAND is python scripts/COMMAND.py of the checkout that is installed (pip install
--editable ".[suite]"), with runs/ and data/ in the current folder. For example:

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
    script = Path(__file__).resolve().parents[2] / "scripts" / f"{command}.py"
    if not script.exists():
        sys.exit(
            "the commands need a checkout with its configs/ and results/: install that one with "
            'pip install --editable ".[suite]"'
        )
    sys.argv = [str(script), *sys.argv[2:]]
    runpy.run_path(str(script), run_name="__main__")
    sys.exit(0)
